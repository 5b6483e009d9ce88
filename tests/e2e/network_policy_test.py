"""Our NetworkPolicies where the network enforces them: a job's and the operator's let through what is needed, and nothing else."""
import atexit
import functools
import json
import os
import pathlib
import subprocess

import pytest

import jobs
from cases import LIMIT, expect, until

METRICS, HTTP = 9400, 8080
SYSTEM = "lockstep-system"
RENDEZVOUS = f"lockstep-rendezvous.{SYSTEM}.svc:29400"  # of the operator that leads
POLICY = {"enabled": True, "metricsFrom": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"scrapes": "lockstep"}}}]}
WORKER = {"app.kubernetes.io/name": "lockstep-worker"}
DENY = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
# One line for each address: itself, curl's exit code, when the connection stood (0: never).
PROBE = """for a; do
  { t=$(curl -s -o /dev/null --noproxy '*' --connect-timeout 3 --max-time 4 -w '%{time_connect}' "http://$a/"); echo "$a $? $t"; } &
done
wait"""


@pytest.fixture(scope="module", autouse=True)
def policies_of_the_operator(cluster):
    subprocess.run([jobs.ROOT / "tests/e2e/install-lockstep", "--set-json", f"networkPolicy={json.dumps(POLICY)}"], check=True, timeout=LIMIT)


@functools.cache
def elsewhere():
    """A namespace without jobs and policies."""
    name = f"{jobs.namespace()}-elsewhere"
    jobs.kubectl("create", "namespace", name)
    atexit.register(jobs.kubectl, "delete", "namespace", name, "--wait=false")
    return name


class Pod:
    """Serves a page, and tries what it reaches."""

    def __init__(self, name, space, node=1, labels=None, host_network=False):
        self.name, self.space = name, space
        jobs.kubectl("--namespace", space, "apply", "--filename=-", stdin=json.dumps(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}},
             "spec": {"nodeName": f"node{node}", "hostNetwork": host_network, "terminationGracePeriodSeconds": 0,
                      "dnsPolicy": "ClusterFirstWithHostNet", "containers": [
                 {"name": "pod", "image": "localhost/busybox:1", "command": ["httpd", "-f", "-p", str(HTTP), "-h", "/etc"]}]}}))

    @functools.cached_property
    def address(self):
        def of_running():
            status = jobs.get("--namespace", self.space, "pod", self.name)["status"]
            return status["phase"] == "Running" and status.get("podIP")
        return until(f"{self.name} runs", of_running)

    def page(self):
        return f"{self.address}:{HTTP}"

    def tries(self, addresses):
        """{address: "open", "cut" (no answer at all) or "closed" (nobody listens)}."""
        expect(self.address, f"{self.name} has no address")  # which it has when it runs
        said = jobs.kubectl("--namespace", self.space, "exec", self.name, "--", "sh", "-c", PROBE, "probe", *addresses)
        return {address: judged(float(time) > 0, int(code) == 28) for address, code, time in map(str.split, said.splitlines())}


class Operator:
    """One of its pods, whose image has no curl."""

    def __init__(self, pod):
        self.name, self.address = pod["metadata"]["name"], pod["status"]["podIP"]

    def tries(self, addresses):
        return {address: self.tries_one(*address.split(":")) for address in addresses}

    def tries_one(self, host, port):
        said = jobs.kubectl("--namespace", SYSTEM, "exec", self.name, "--", "bash", "-c",
                            f"timeout 3 bash -c ': <>/dev/tcp/{host}/{port}' 2>/dev/null; echo $?")
        return judged(int(said) == 0, int(said) == 124)


def judged(is_open, is_cut):
    return "open" if is_open else "cut" if is_cut else "closed"


def expect_reach(what, pods, reached=(), cut=()):
    """Each of the pods reaches some addresses and others not, in one look; a changed policy may take a moment to be known."""
    wanted = {**{address: "open" for address in reached}, **{address: "cut" for address in cut}}
    for pod in pods:
        seen = {}

        def is_so(pod=pod, seen=seen):
            seen.update(pod.tries(wanted))
            return seen == wanted
        until(f"{what}: {pod.name} reaches {list(reached)}, not {list(cut)}", is_so, poll=1, details=lambda seen=seen: f"{seen}")


def listening(pod):
    """The ports on which a worker listens, its metrics' among them."""
    supervisor = jobs.process_of(pod, "lockstep")
    sockets = [line.split()[1:4] for table in ("tcp", "tcp6")
               for line in pathlib.Path(f"/proc/{supervisor}/net/{table}").read_text().splitlines()[1:]]
    return {int(local.split(":")[1], 16) for local, _, state in sockets if state == "0A" and not local.startswith("0100007F")}


def isolated(name, **training):
    """Its two workers are on different nodes."""
    job = jobs.manifest(name, replicas=2, **training)
    job["spec"]["network"] = {"networkPolicy": "Isolate"}
    job["spec"]["worker"]["template"]["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"lockstep.dev/job": name}}}]}}
    return job


def deny_all():
    jobs.kubectl("--namespace", jobs.namespace(), "apply", "--filename=-", stdin=json.dumps(DENY))


def allow_all():
    jobs.kubectl("--namespace", jobs.namespace(), "delete", "networkpolicy", "deny", "--ignore-not-found")


def test_a_job_runs_to_its_end_where_all_else_is_denied():
    deny_all()
    try:
        with jobs.running(isolated("denied")) as job:
            status = job.until_complete()
            nodes = {pod["spec"]["nodeName"] for pod in job.pods()}
            expect(len(nodes) == 2, f"its workers were on {nodes}")
            expect(status["rendezvous"]["round"] == 1 and status.get("restarts", []) == [], f"it was disturbed: {status}")
            expect(list(job.checkpoint_folder().glob("step-*/manifest.json")), "it stored no checkpoint")
    finally:
        allow_all()


def test_strangers_reach_nothing_of_a_job_but_its_metrics():
    manifest = isolated("guarded", epochs=10_000, model=jobs.SLOW)
    manifest["spec"]["checkpoint"]["intervalSteps"] = 10**6
    near, far = Pod("near", elsewhere(), 1), Pod("far", elsewhere(), 2)
    outsiders = [near, far, Pod("twin", elsewhere(), 2, {**WORKER, "lockstep.dev/job": "guarded"}),
                 Pod("neighbour", jobs.namespace(), 1), Pod("other-job", jobs.namespace(), 2, {**WORKER, "lockstep.dev/job": "other"})]
    controls = [near.page(), far.page()]
    bystander = Pod("bystander", jobs.namespace(), 1).page()
    deny_all()
    try:
        with jobs.running(manifest, with_ledger=True) as job:
            job.until_ranks(2)
            ranks, metrics, pods = [], [], job.uids()
            for pod, address in job.addresses().items():
                ports = listening(pod)
                metrics.append(f"{address}:{METRICS}")
                ranks += [f"{address}:{port}" for port in ports - {METRICS}]
                expect(METRICS in ports and len(ports) > 1, f"{pod} listens on {ports}")
            expect_reach("isolated", outsiders, reached=controls + metrics, cut=[*ranks, bystander])

            job.kubectl("patch", "dtj", job.name, "--type=merge", "--patch", '{"spec": {"network": {"networkPolicy": "None"}}}')
            expect_reach("denied by the namespace", [near, far], reached=controls, cut=[*ranks, *metrics, bystander])

            allow_all()
            expect_reach("without a policy", outsiders, reached=controls + metrics + ranks + [bystander])
            expect(job.uids() == pods, f"pods were {pods}, are {job.uids()}")
    finally:
        allow_all()


def helm(*arguments):
    done = subprocess.run(["helm", *arguments, "--namespace", SYSTEM, "--timeout=10m"], capture_output=True, text=True, timeout=LIMIT,
                          check=False)
    expect(done.returncode == 0, f"helm {arguments[0]}: {done.stdout}{done.stderr}")
    return done.stdout


def set_policy(**values):
    helm("upgrade", "lockstep", str(jobs.ROOT / "charts" / "lockstep"), "--reuse-values", "--wait", "--set-json",
         f"networkPolicy={json.dumps({**POLICY, **values})}")


def test_the_operator_is_reached_by_workers_and_scrapers_and_reaches_only_the_api_server():
    strangers = [Pod("near", elsewhere(), 1), Pod("far", elsewhere(), 2)]
    worker = Pod("worker", elsewhere(), 1, {**WORKER, "app.kubernetes.io/managed-by": "lockstep"})
    scraper = Pod("scraper", elsewhere(), 2, {"scrapes": "lockstep"})
    operators = [Operator(pod) for pod in jobs.get("--namespace", SYSTEM, "pods", "--selector=app.kubernetes.io/name=lockstep")["items"]]
    expect(len(operators) == 2, f"operators: {operators}")
    metrics = [f"{operator.address}:8080" for operator in operators]
    api_server = ["kubernetes.default.svc:443"]
    others = [strangers[0].page(), strangers[1].page(), os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")]

    expect_reach("stranger", strangers, cut=[RENDEZVOUS, *metrics])
    expect_reach("worker", [worker], reached=[RENDEZVOUS], cut=metrics)
    expect_reach("scraper", [scraper], reached=metrics, cut=[RENDEZVOUS])
    expect_reach("out", operators, reached=api_server, cut=others)
    expect("Succeeded" in helm("test", "lockstep"), "helm test does not say Succeeded")

    set_policy(metricsFrom=[])
    expect_reach("metrics for all", strangers, reached=metrics, cut=[RENDEZVOUS])
    set_policy(enabled=False)
    try:
        expect_reach("without a policy", strangers, reached=[RENDEZVOUS, *metrics])
        expect_reach("out, without a policy", operators, reached=api_server + others)
    finally:
        set_policy()


def test_jobs_in_the_network_of_their_nodes_need_these_to_be_let_in():
    nodes = [Pod(f"host-{node}", elsewhere(), node, host_network=True) for node in (1, 2)]
    until("a node is cut off: its own pods a node always reaches",
          lambda: sorted(pod.tries([RENDEZVOUS])[RENDEZVOUS] for pod in nodes) == ["cut", "open"], poll=1)
    set_policy(rendezvousFrom=[{"ipBlock": {"cidr": f"{pod.address}/32"}} for pod in nodes])
    try:
        expect_reach("nodes", nodes, reached=[RENDEZVOUS])
        job = isolated("on-hosts")
        job["spec"]["network"] = {"networkPolicy": "None", "hostNetwork": True}
        with jobs.running(job) as job:
            job.until_complete()
    finally:
        set_policy()
