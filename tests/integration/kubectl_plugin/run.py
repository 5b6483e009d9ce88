"""`kubectl lockstep` as people run it: found by kubectl in PATH, against a real API server.


Needs KUBECONFIG with an administrator's rights and kubectl (KUBECTL or on PATH); skipped without them. Nodes are not needed: the
test writes the status that an operator would write, and plays what pods log.
"""
import contextlib
import copy
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
from build_folder import BIN
from cases import ENDS_WITH_US, LIMIT, expect, until

KUBECTL = shutil.which(os.environ.get("KUBECTL", "kubectl"))
SPACE = "plugin-" + uuid.uuid4().hex[:6]
DEFINITION = ROOT / "crds" / "distributedtrainingjobs.yaml"
KIND = "distributedtrainingjobs.lockstep.dev"

JOB = {
    "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "fashion"},
    "spec": {
        "managedBy": "lockstep.dev/plugin-test",  # an operator in the same cluster shall leave it alone
        "nprocPerNode": 2,
        "worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "worker"}]}}},
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4},
        "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 1000},
        "checkpoint": {"uri": "s3://bucket/fashion", "intervalSteps": 100},
    },
}


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind, status="True", reason="Training", message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now()}


def running(step=250, checkpoint=200):
    return {
        "observedGeneration": 1, "state": "Running", "replicas": 2, "readyReplicas": 2, "attempt": 1,
        "conditions": [condition("Progressing"), condition("Degraded", reason="Straggler", message="rank 1 takes twice as long")],
        "rendezvous": {"round": 3, "worldSize": 4},
        "progress": {"step": step, "totalSteps": 1000, "epoch": 2, "loss": 0.5, "samplesPerSecond": 640},
        "checkpoint": {"step": checkpoint, "time": "2026-01-02T03:04:05Z", "uri": "s3://bucket/fashion/step-000000000200"},
        "goodput": {"since": "2026-01-02T03:00:00Z", "ratio": 0.9, "productiveSeconds": 90, "lostSeconds": {"startup": 10}},
        "restarts": [{"time": now(), "round": 2, "cause": "Preemption", "ranks": [2, 3], "level": "Membership", "recoverySeconds": 0.5,
                      "lostSteps": 1, "message": "round 2: fashion-worker-1: SIGTERM"}],
    }


def kubectl(*arguments, stdin=None):
    done = subprocess.run([KUBECTL, "--namespace", SPACE, *arguments], input=stdin, capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}")
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def namespace():
    if "KUBECONFIG" not in os.environ or KUBECTL is None:
        pytest.skip("there is no KUBECONFIG, or no kubectl")
    was_there = subprocess.run([KUBECTL, "get", "crd", KIND], capture_output=True, timeout=LIMIT).returncode == 0
    if not was_there:
        kubectl("apply", "--server-side", f"--filename={DEFINITION}")
        until("our resource is served", lambda: subprocess.run([KUBECTL, "get", KIND], capture_output=True, timeout=LIMIT).returncode == 0)
    kubectl("create", "namespace", SPACE)
    yield
    kubectl("delete", "namespace", SPACE, "--wait=false")
    if not was_there:
        kubectl("delete", f"--filename={DEFINITION}")


def get_job(name="fashion"):
    return json.loads(kubectl("get", KIND, name, "--output=json"))


def write_status(status, name="fashion"):
    kubectl("patch", KIND, name, "--subresource=status", "--type=merge", "--patch", json.dumps({"status": status}))


def command(*arguments):
    return [KUBECTL, "lockstep", *arguments, "--namespace", SPACE]


def environment(**more):
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "KUBECTL": KUBECTL, **more}


def plugin(*arguments, code=0, **more):
    """What it wrote: (stdout, stderr)."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=LIMIT, env=environment(**more))
    expect(done.returncode == code, f"lockstep {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def refused(*arguments, **more):
    """The one line of an error."""
    lines = plugin(*arguments, code=1, **more)[1].splitlines()
    expect(len(lines) == 1 and lines[0].startswith("kubectl lockstep: "), f"not one line of ours: {lines}")
    return lines[0]


def expect_in(text, *parts):
    for part in parts:
        expect(part in text, f"no {part!r} in:\n{text}")


@contextlib.contextmanager
def job(status=None, **spec):
    made = copy.deepcopy(JOB)
    made["spec"].update(spec)
    kubectl("create", "--filename=-", stdin=json.dumps(made))
    try:
        if status:
            write_status(status)
        yield
    finally:
        kubectl("delete", KIND, "fashion", "--ignore-not-found")


@contextlib.contextmanager
def worker_pods(count):
    pods = [{"apiVersion": "v1", "kind": "Pod",
             "metadata": {"name": f"fashion-worker-{slot}", "labels": {
                 "lockstep.dev/job": "fashion", "lockstep.dev/slot": str(slot), "app.kubernetes.io/name": "lockstep-worker"}},
             "spec": {"automountServiceAccountToken": False, "schedulerName": "nobody",
                      "containers": [{"name": "trainer", "image": "worker"}]}} for slot in range(count)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})

    def is_made():  # the namespace's service account comes a moment after it
        return subprocess.run([KUBECTL, "--namespace", SPACE, "apply", "--filename=-"], input=text, text=True, capture_output=True,
                              timeout=LIMIT).returncode == 0
    until("the pods are made", is_made, poll=0.5)
    try:
        yield
    finally:
        kubectl("delete", "pods", "--all", "--force", "--grace-period=0")


@contextlib.contextmanager
def played_logs(lines):
    """A kubectl whose `logs` are these: no pod runs. Gives its path and what it was asked for last."""
    with tempfile.TemporaryDirectory(prefix="lockstep-logs-") as folder:
        place = pathlib.Path(folder)
        for pod, text in lines.items():
            (place / pod).write_text("".join(f"{line}\n" for line in text))
        everything = "".join(f"[pod/{pod}/trainer] {line}\n" for pod, text in lines.items() for line in text)
        (place / "everything").write_text(everything)
        script = place / "kubectl"
        script.write_text(f"""#!/bin/sh
[ "$1" = logs ] || exec '{KUBECTL}' "$@"
echo "$@" >'{place}/asked'
for word; do
  case $word in
    --selector=*lockstep.dev/job=fashion) exec cat '{place}/everything' ;;
    fashion-worker-*) exec cat "{place}/$word" ;;
  esac
done
exit 1
""")
        script.chmod(0o755)
        yield str(script), lambda: (place / "asked").read_text()


def placed(local_rank, rank, round_number):
    return json.dumps({"level": "info", "message": "rank placed", "local_rank": local_rank, "rank": rank, "round": round_number})


def test_status_shows_the_job_and_its_pods():
    expect_in(plugin("status")[0], "no jobs in this namespace")
    with job(running()), worker_pods(2):
        text = plugin("status", "fashion")[0]
        expect_in(text, f"fashion in {SPACE}", "State       Running", "Degraded (Straggler: rank 1 takes twice as long)",
                  "2 of 2 ready, elastic from 1 to 4", "Round       3, 4 ranks", "step 250 of 1000 (25 %)", "640 samples/s",
                  "100 ms a step", "about 1 min 15 s left", "step 200", "90 %", "startup 10 s", "Preemption", "fashion-worker-1  Pending")
        expect_in(plugin("status")[0].splitlines()[1], "fashion", "Running", "2/2", "250/1000")
        expect_in(plugin("status", "-A")[0], f"{SPACE}  fashion")


def test_status_for_programs():
    with job(running()), worker_pods(2), played_logs({"fashion-worker-1": [placed(0, 1, 3), placed(1, 0, 3)]}) as (played, _):
        shown = json.loads(plugin("status", "fashion", "-o", "json", KUBECTL=played)[0])
        expect(shown["status"]["progress"]["step"] == 250, shown)
        expect([(pod["name"], pod["ranks"], pod["ready"]) for pod in shown["pods"]] ==
               [("fashion-worker-1", [0, 1], False), ("fashion-worker-0", [], False)], shown["pods"])
        listed = json.loads(plugin("status", "--output=json")[0])
        expect([item["metadata"]["name"] for item in listed["items"]] == ["fashion"], listed)


def test_watching_ends_with_the_job():
    with job(running()), subprocess.Popen([*ENDS_WITH_US, *command("status", "fashion", "--watch")], stdout=subprocess.PIPE, text=True,
                                          env=environment()) as watching:
        for line in watching.stdout:
            if "step 250 of 1000" in line:
                write_status(running(step=300))
            if "step 300 of 1000" in line:
                write_status({"state": "Complete", "conditions": [condition("Complete", reason="TrainingDone")]})
            if "State" in line:
                last_state = line
        expect(watching.wait(LIMIT) == 0, f"exit code {watching.returncode}")
        expect_in(last_state, "Complete (TrainingDone)")


def test_scale_keeps_to_the_bounds():
    with job(running()):
        expect_in(plugin("scale", "fashion", "4")[0], "scaled from 2 to 4 pods")
        expect(get_job()["spec"]["worker"]["replicas"] == 4, "not scaled")
        expect_in(plugin("scale", "fashion", "4")[0], "has 4 pods already")
        expect_in(refused("scale", "fashion", "5"), "maxReplicas 4")
        expect(get_job()["spec"]["worker"]["replicas"] == 4, "scaled beyond its bounds")
        expect_in(plugin("scale", "fashion", "0", code=2)[1], "N: ")


def test_suspend_and_resume():
    with job(running()):
        expect_in(plugin("suspend", "fashion")[0], "it saves a checkpoint, then its pods are removed")
        expect(get_job()["spec"]["suspend"] is True, "not suspended")
        expect_in(plugin("suspend", "fashion")[0], "already")
        expect_in(refused("checkpoint", "fashion"), "is suspended")
        expect_in(plugin("resume", "fashion")[0], "is resumed")
        expect(get_job()["spec"]["suspend"] is False, "not resumed")


def requested(annotation="lockstep.dev/save"):
    return get_job()["metadata"].get("annotations", {}).get(annotation)


def test_checkpoint_waits_for_a_newer_one():
    with job(running()):
        plugin("checkpoint", "fashion")
        first = requested()
        expect(first, "no annotation")
        expect_in(refused("checkpoint", "fashion", "--wait", "--timeout=1s"), "no checkpoint within 1 s")
        second = requested()
        with subprocess.Popen([*ENDS_WITH_US, *command("checkpoint", "fashion", "--wait")], stdout=subprocess.PIPE, text=True,
                              env=environment()) as waiting:
            until("a new request", lambda: requested() != second)
            write_status(running(step=260))  # no answer
            stored = {"step": 260, "time": now(), "uri": "s3://bucket/fashion/step-000000000260"}
            write_status({"checkpoint": stored})
            said = waiting.stdout.read()
            expect(waiting.wait(LIMIT) == 0, f"exit code {waiting.returncode}")
        expect_in(said, "stored step 260: s3://bucket/fashion/step-000000000260")
    with job(running(), checkpoint=None):
        expect_in(refused("checkpoint", "fashion"), "no spec.checkpoint")


def test_profile_asks_for_a_trace():
    with job(running()):
        expect_in(plugin("profile", "fashion", "--steps", "7")[0], "its next 7 steps", "s3://bucket/fashion/profile")
        first = requested("lockstep.dev/profile")
        expect(first.startswith("7 "), first)
        expect_in(plugin("profile", "fashion")[0], "its next 5 steps")
        expect(requested("lockstep.dev/profile") != first, "the second request is the first")
        expect_in(plugin("profile", "fashion", "--steps=101", code=2)[1], "--steps")
    with job(running(), checkpoint=None):
        expect_in(refused("profile", "fashion"), "no spec.checkpoint")


def written(folder, *jobs):
    """A manifest of these jobs and of a ConfigMap."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"}}
    path = pathlib.Path(folder, "jobs.yaml")
    path.write_text("\n---\n".join(map(json.dumps, [other, *jobs])))
    return path


def named(name, **spec):
    return {**JOB, "metadata": {"name": name}, "spec": {**JOB["spec"], **spec}}


def test_submit_applies_and_follows(folder):
    path = written(folder, named("first"), named("second"))
    try:
        said = plugin("submit", str(path))[0]
        expect_in(said, f"first is submitted to namespace {SPACE}", f"second is submitted to namespace {SPACE}")
        expect(get_job("second")["spec"]["worker"]["replicas"] == 2, "not as written")
        kubectl("get", "configmap", "beside")
        one = written(folder, named("first", nprocPerNode=1))
        with one.open() as text:  # the newest manifest wins, also from standard input
            done = subprocess.run(command("submit", "-"), stdin=text, capture_output=True, text=True, timeout=LIMIT, env=environment())
        expect(done.returncode == 0 and get_job("first")["spec"]["nprocPerNode"] == 1, f"{done.stdout}{done.stderr}")
        one = written(folder, named("first", nprocPerNode=1), named("second"))
        with subprocess.Popen([*ENDS_WITH_US, *command("submit", str(one), "--wait")], stdout=subprocess.PIPE, text=True,
                              env=environment()) as waiting:
            for line in waiting.stdout:
                if f"first in {SPACE}" in line:
                    write_status({"state": "Complete", "conditions": [condition("Complete", reason="TrainingDone")]}, "first")
                if f"second in {SPACE}" in line:
                    write_status({"state": "Failed", "conditions": [condition("Failed", reason="UserError")]}, "second")
            expect(waiting.wait(LIMIT) == 1, f"exit code {waiting.returncode}, though the second job failed")
        wrong = written(folder, named("first", globalBatchsize=3))
        expect_in(refused("submit", str(wrong)), ".spec.globalBatchsize: field not declared in schema", "`kubectl lockstep validate`")
        expect_in(refused("submit", f"{folder}/absent.yaml"), "absent.yaml")
    finally:
        kubectl("delete", KIND, "first", "second", "--ignore-not-found")
        kubectl("delete", "configmap", "beside", "--ignore-not-found")


def test_delete_says_what_becomes_of_the_checkpoints():
    with job(running()):
        expect_in(refused("delete", "fashion", "nobody"), 'there is no job "nobody"')
        expect(get_job(), "deleted, though the other is not there")
        expect_in(plugin("delete", "fashion")[0], "fashion is deleted; its checkpoints remain below s3://bucket/fashion")
        expect_in(refused("status", "fashion"), "there is no job")


def event(name, reason, message, kind="Pod", uid=None, kept=0):
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.{reason.lower()}"}, "type": "Warning", "reason": reason,
            "message": message, "involvedObject": {"kind": kind, "namespace": SPACE, "name": name, **({"uid": uid} if uid else {})},
            "firstTimestamp": f"2026-01-02T03:04:0{kept}Z", "lastTimestamp": f"2026-01-02T03:04:0{kept}Z", "count": 3}


def test_events_are_those_of_the_job_and_its_pods():
    with job(running()):
        expect_in(plugin("events", "fashion")[0], "no events of fashion")
        events = [event("fashion-worker-1", "FailedScheduling", "no node fits", kept=2),
                  event("fashion", "Restarting", "a rank is gone", kind="DistributedTrainingJob", uid=get_job()["metadata"]["uid"], kept=1),
                  event("fashion-worker-x", "Other", "not ours"), event("other", "Other", "not ours"),
                  event("fashion", "Before", "of a job before", kind="DistributedTrainingJob", uid="another")]
        kubectl("create", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": events}))
        try:
            lines = plugin("events", "fashion")[0].splitlines()
        finally:
            kubectl("delete", "events", "--all")
        expect(len(lines) == 3, f"{lines}")
        expect_in(lines[1], "Restarting", "fashion", "a rank is gone")
        expect_in(lines[2], "FailedScheduling", "fashion-worker-1", "3", "no node fits")


def test_kubectl_completes_commands_flags_and_jobs():
    def completed(*words, **more):
        done = subprocess.run([ROOT / "runtime/tools/kubectl_plugin/kubectl_complete-lockstep", *words], capture_output=True, text=True,
                              timeout=LIMIT, env=environment(**more))
        expect(done.returncode == 0, done.stderr)
        return [line.split("\t")[0] for line in done.stdout.splitlines()]
    expect(completed("su") == ["submit", "suspend", ":4"], completed("su"))
    expect(completed("status", "--w") == ["--watch", ":4"], completed("status", "--w"))
    expect(completed("status", "-o", "") == ["json", ":4"], completed("status", "-o", ""))
    expect(completed("submit", "") == [":0"], completed("submit", ""))
    with job(running()):
        expect(completed("--namespace", SPACE, "status", "") == ["fashion", ":4"], completed("--namespace", SPACE, "status", ""))
        expect(completed("-n", SPACE, "delete", "x") == [":4"], completed("-n", SPACE, "delete", "x"))
    expect(completed("status", "", KUBECTL="/no/such/kubectl") == [":4"], "a failure of kubectl is shown")


def test_logs_of_a_rank_come_from_its_pod():
    moved = {  # the ranks of pod 1 were 2 and 3, until pod 0 left and came back behind it
        "fashion-worker-0": [placed(0, 0, 2), "[rank 0 round 2] early", placed(0, 2, 3), placed(1, 3, 3), "[rank 2 round 3] late"],
        "fashion-worker-1": [placed(0, 2, 2), placed(0, 0, 3), placed(1, 1, 3), '{"message":"serving metrics"}', "[rank 1 round 3] one",
                             "[rank 0 round 3] zero"],
    }
    with job(running()):
        expect_in(refused("logs", "fashion"), "has no pods")
        with worker_pods(2), played_logs(moved) as (played, asked):
            said, found = plugin("logs", "fashion", "--rank", "1", "--follow", KUBECTL=played)
            expect_in(found, "rank 1 of round 3: pod fashion-worker-1")
            expect_in(asked(), "--follow", "--container=trainer")
            expect_in(said, "one", "serving metrics")
            expect("zero" not in said, f"lines of another rank:\n{said}")
            expect_in(plugin("logs", "fashion", "--rank=2", KUBECTL=played)[0], "late")
            expect_in(plugin("logs", "fashion", KUBECTL=played)[0], "zero")
            expect_in(refused("logs", "fashion", "--rank=4", KUBECTL=played), "its ranks are 0 to 3")
            expect_in(plugin("logs", "fashion", "--all", KUBECTL=played)[0], "[pod/fashion-worker-0/trainer]", "[pod/fashion-worker-1/trainer]")
            text = plugin("status", "fashion", KUBECTL=played)[0]
            expect_in(text, "0-1   fashion-worker-1", "2-3   fashion-worker-0")


def test_top_says_that_nothing_is_measured():
    with job(running()):
        done = subprocess.run([KUBECTL, "get", "--raw", "/apis/metrics.k8s.io/v1beta1"], capture_output=True, timeout=LIMIT)
        expect(done.returncode != 0, "this cluster has a metrics-server, which the case is not made for")
        expect_in(refused("top", "fashion"), "no metrics-server")
        expect_in(plugin("top", "fashion", code=1)[0], "640 samples/s, 100 ms a step")


def test_scaling_compares_the_sizes():
    sizes = [{"worldSize": ranks, "samplesPerSecond": speed, "communication": share, "data": 0.01, "steps": 90, "time": now()}
             for ranks, speed, share in ((2, 640, 0.05), (4, 768, 0.5))]
    with job(running()):
        expect_in(plugin("scaling", "fashion")[0], "Not measured yet")
        write_status({"scaling": sizes})
        expect_in(plugin("scaling", "fashion")[0], "4      768        192       60 %        50 %           1 %   90",
                  "Recommended: 2 ranks", "limited mostly by communication")
        shown = json.loads(plugin("scaling", "fashion", "-o", "json")[0])
        expect(shown["recommendedWorldSize"] == 2 and [size["efficiency"] for size in shown["sizes"]] == [1, 0.6], shown)
    expect_in(refused("scaling", "nobody"), 'there is no job "nobody"')


def test_validate_needs_no_cluster():
    example = str(ROOT / "crds/examples/minimal.yaml")
    expect_in(plugin("validate", example, KUBECTL="/no/such/kubectl")[0], "is valid")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        wrong = copy.deepcopy(JOB)
        wrong["spec"]["worker"]["replicas"] = 9
        json.dump(wrong, file)
        file.flush()
        lines = plugin("validate", file.name, example, code=1)[1]
        reported = subprocess.run([BIN / "lockstep", "validate", file.name], capture_output=True, text=True, timeout=LIMIT)
        expect_in(lines, "spec.worker.replicas")
        expect_in(lines, reported.stderr)


def test_failures_are_one_clear_line():
    expect_in(refused("status", "nobody"), 'there is no job "nobody" in this namespace')
    with job(running()):
        expect_in(refused("suspend", "fashion", "--as=eve"), "not allowed", 'User "eve" cannot get')
    expect_in(refused("status", "--server=https://127.0.0.1:1"), "no connection to the API server")
    expect_in(refused("status", "--context=nowhere"), "nowhere")
    expect_in(refused("status", KUBECTL="/no/such/kubectl"), "/no/such/kubectl cannot be started")


def test_misuse_names_the_mistake_and_the_help():
    for words, says in {(): "a command is required", ("stauts",): 'unknown command "stauts": did you mean "status"?',
                        ("scale", "fashion"): "N is required", ("scale", "fashion", "two"): "two",
                        ("logs", "fashion", "--rank=-1"): "--rank", ("status", "--watch"): "--watch requires JOB",
                        ("logs", "fashion", "--folow"): 'unknown flag "--folow": did you mean "--follow"?',
                        ("status", "--namspace=x"): 'unknown flag "--namspace": did you mean "--namespace"?',
                        ("checkpoint", "fashion", "--timeout=5m"): "--timeout requires --wait",
                        ("checkpoint", "fashion", "--wait", "--timeout=5d"): '"5d" is not a duration such as 90s, 5m'}.items():
        lines = plugin(*words, code=2)[1].splitlines()
        expect(len(lines) == 2 and says in lines[0] and lines[0].startswith("kubectl lockstep"), f"{words}: {lines}")
        expect_in(lines[1], "Run `kubectl lockstep", "--help` for usage.")
