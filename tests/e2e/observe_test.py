"""What Grafana would show of a real job: every query of every dashboard, asked of the cluster's Prometheus."""
import math
import re
import subprocess

import jobs
import dashboards
from cases import LIMIT, expect, until

OPERATOR_NAMESPACE = "lockstep-system"
# Queries without an answer while a job trains of which one rank was killed, each with the reason.
MAY_BE_EMPTY = {
    "training-job.json: Hangs A": "no rank hangs",
    "training-job.json: annotation Restarts": "a killed process is started in its pod, at no charge",
    "training-job.json: annotation Rounds": "a line has a value in one interval only",
    "training-job.json: annotation Checkpoints": "a line has a value in one interval only",
    "training-job.json: Memory of checkpoints, by rank A": "the job is no script with the Python package",
    "training-job.json: Samples and tokens per second B": "the job learns pictures, which have no tokens",
    **{f"training-job.json: {query}": "no node of the test cluster has a GPU"
       for query in ("GPU utilisation A", "Model FLOPs utilization (MFU) A", "GPU memory in use A", "GPU memory in use B", "GPU errors since the pods began A",
                     "GPU errors since the pods began B", "GPU power A", "GPU temperature A")},
    "fleet.json: Time in a queue A": "the test cluster has no Kueue",
    "fleet.json: Time in a queue B": "the test cluster has no Kueue",
    "fleet.json: annotation Restarts": "a killed process is started in its pod, at no charge",
    "operator.json: annotation Shards": "the shards stay where they are",
}


def values_of(dashboard, job_name):
    """What a reader has chosen in each variable."""
    namespace = OPERATOR_NAMESPACE if dashboard == "operator.json" else jobs.namespace()
    # Prometheus scrapes the test cluster every two seconds.
    return {"namespace": namespace, "job_name": job_name, "__rate_interval": "30s", "__interval": "10s", "__range": "10m"}


def missing_choices(name, dashboard, values):
    """Variables whose list of choices lacks what the test chooses."""
    for variable, expression in dashboards.variables(dashboard).items():
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", dashboards.substituted(expression, values)).groups()
        found = {labels.get(label) for labels, _ in jobs.prometheus(f"count by ({label}) ({selector})")}
        if values[variable] not in found:
            yield f"{name}: variable {variable}: {sorted(map(str, found))}"


def problem_with(expression, legend):
    series = jobs.prometheus(expression)
    if not series:
        return "no data"
    if not all(math.isfinite(value) for _, value in series):
        return f"not finite: {series}"
    for label in re.findall(r"\{\{(\w+)\}\}", legend):
        if not all(label in labels for labels, _ in series):
            return f"no label {label}: {series}"
    return None


def unanswered(job_name):
    """[(query, what is wrong)] over all dashboards; those that may be empty must only be answered without an error."""
    found = []
    for name, dashboard in dashboards.load().items():
        values = values_of(name, job_name)
        legends = {f"{panel['title']} {target['refId']}": target["legendFormat"]
                   for panel in dashboards.panels(dashboard) for target in panel["targets"] if panel["type"] != "table"}
        found += [(problem, "") for problem in missing_choices(name, dashboard, values)]
        for where, expression in dashboards.queries(dashboard):
            sent = dashboards.substituted(expression, values)
            problem = problem_with(sent, legends.get(where, ""))
            if problem and f"{name}: {where}" not in MAY_BE_EMPTY:
                found.append((f"{name}: {where}", f"{problem}\n  {sent}"))
    return found


def lint_of_metrics(job):
    """What promtool has against the names, types and HELP of what the operators and the pods of a job export."""
    operators = jobs.addresses("--namespace", OPERATOR_NAMESPACE, "--selector=app.kubernetes.io/name=lockstep")
    addresses = {pod: (address, 8080) for pod, address in operators.items()}
    addresses |= {pod: (address, 9400) for pod, address in job.addresses().items()}
    for pod, (address, port) in addresses.items():
        done = subprocess.run(["promtool", "check", "metrics"], input=jobs.exposition(address, port), text=True,
                              capture_output=True, timeout=LIMIT, check=False)
        if done.returncode != 0:
            yield f"{pod}: {done.stdout}{done.stderr}"


def test_every_panel_has_data_while_a_job_trains():
    job = jobs.manifest("observed", replicas=2, epochs=500)
    with jobs.running(job, with_ledger=True) as observed:
        observed.until_ranks(2)
        observed.until_step(500)  # an evaluation and checkpoints lie behind it
        pod, pids = sorted(observed.ranks().items())[0]
        before, _ = observed.newest_ranks()
        observed.kill({pod: pids})
        observed.until_ranks(2, after=before)
        with jobs.running(jobs.manifest("later", epochs=1)) as later:  # Prometheus may not have known the operator when the first started
            later.until_complete()
        until("every query has an answer", lambda: not unanswered(observed.name), poll=2,
              details=lambda: "\n".join(f"{where}: {problem}" for where, problem in unanswered(observed.name)))
        ranks = {(labels["replica"], labels["rank"]) for labels, _ in jobs.prometheus(f'lockstep_rank_info{{job_name="{observed.name}"}}')}
        expect({replica for replica, _ in ranks} == {rank for _, rank in ranks} == {"0", "1"}, f"global ranks: {sorted(ranks)}")
        complaints = list(lint_of_metrics(observed))
        expect(not complaints, "\n".join(complaints))
        exported = dashboards.exported() | set(dashboards.recorded())
        seen = {labels["__name__"] for labels, _ in jobs.prometheus('group by (__name__) ({__name__=~"lockstep_.+"})')}
        unknown = {name for name in seen if not dashboards.family(name, exported)}
        expect(not unknown, f"exported, but not where the lint of the dashboards looks: {sorted(unknown)}")


def test_no_query_is_excused_that_does_not_exist():
    existing = {f"{name}: {where}" for name, dashboard in dashboards.load().items() for where, _ in dashboards.queries(dashboard)}
    expect(set(MAY_BE_EMPTY) <= existing, sorted(set(MAY_BE_EMPTY) - existing))
