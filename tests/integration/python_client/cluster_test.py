"""`lockstep.Client` against a real API server: what it creates is what the definition accepts. No operator runs: the test writes the status
that one would write, and stops the API server.
"""
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import uuid

import pytest
from cases import LIMIT, expect, until

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "runtime/python"), str(ROOT / "tests/integration/operator"),
                subprocess.run([ROOT / ".ci/install", "--print-client-site"], check=True, capture_output=True, text=True).stdout.strip()]
import lockstep  # noqa: E402
from failing_api import FailingApi  # noqa: E402

SPACE = "client-" + uuid.uuid4().hex[:6]
KIND = "distributedtrainingjobs.lockstep.dev"
NOW = "2026-01-02T03:04:05Z"
# An operator in the same cluster shall leave it alone.
ELSEWHERE = {"managedBy": "lockstep.dev/client-test"}


def kubectl(*arguments, stdin=None):
    done = subprocess.run(["kubectl", "--namespace", SPACE, *arguments], input=stdin, capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}")
    return done.stdout


@pytest.fixture(scope="module")
def client():
    if "LOCKSTEP_CLUSTER" not in os.environ:
        pytest.skip("LOCKSTEP_CLUSTER is not set")
    kubectl("create", "namespace", SPACE)
    yield lockstep.Client(SPACE)
    kubectl("delete", "namespace", SPACE, "--wait=false")


def get(kind, name):
    return json.loads(kubectl("get", kind, name, "--output=json"))


def scripts():
    return [name for name in kubectl("get", "configmaps", "--output=name").split() if "-script-" in name]


def write_status(name, **status):
    kubectl("patch", KIND, name, "--subresource=status", "--type=merge", "--patch", json.dumps({"status": status}))


def condition(kind, reason, message=""):
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": NOW}


def complete(name):
    write_status(name, state="Complete", conditions=[condition("Complete", "TrainingDone")])


def refused(call, *parts, error=lockstep.LockstepError):
    with pytest.raises(error) as raised:
        call()
    text = str(raised.value)
    for part in parts:
        expect(part in text, f"no {part!r} in: {text}")
    return text


SCALE = 3


def scaled(number):
    return number * SCALE


def train(rate, steps=10):
    import torch

    print(torch.nn.Linear(2, 2), scaled(rate), steps)


def test_a_function_becomes_a_job(client):
    job = client.submit(train, arguments={"rate": 0.5}, image="registry.example/torch:1", replicas=4, nproc_per_node=8, name="mnist",
                        resources={"nvidia.com/gpu": 8}, packages=["datasets==4.0"], env={"A": "b"}, container={"imagePullPolicy": "Always"},
                        spec={**ELSEWHERE, "elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}})
    found = get(KIND, "mnist")
    spec, pod = found["spec"], found["spec"]["worker"]["template"]["spec"]
    trainer, = pod["containers"]
    expect((spec["nprocPerNode"], spec["worker"]["replicas"], spec["elasticPolicy"]["minReplicas"]) == (8, 4, 2), f"{spec}")
    expect(trainer["command"] == ["python3", "/opt/lockstep-script/train.py"] and trainer["imagePullPolicy"] == "Always", f"{trainer}")
    expect({"name": "A", "value": "b"} in trainer["env"] and trainer["resources"]["limits"] == {"nvidia.com/gpu": 8}, f"{trainer}")
    packages, = pod["initContainers"]
    expect(packages["image"] == trainer["image"] and packages["command"][-1] == "datasets==4.0", f"{packages}")
    bases = [entry["value"] for each in (packages, trainer) for entry in each["env"] if entry["name"] == "PYTHONUSERBASE"]
    expect(len(bases) == 2 and all(base in [m["mountPath"] for m in trainer["volumeMounts"]] for base in bases), f"{bases}")
    config_map = get("configmap", pod["volumes"][0]["configMap"]["name"])
    owner, = config_map["metadata"]["ownerReferences"]
    expect((owner["kind"], owner["uid"]) == ("DistributedTrainingJob", found["metadata"]["uid"]), f"{owner}")
    script = config_map["data"]["train.py"]
    expect(script.index("SCALE = 3") < script.index("def scaled") < script.index("def train") and "**{'rate': 0.5}" in script, script)
    expect([each.name for each in client.jobs()] == ["mnist"], f"{client.jobs()}")
    text = refused(lambda: client.submit(train, arguments={"rate": 1}, image="x", name="mnist"), "mnist already", "delete")
    expect("\n" not in text, text)
    expect(len(scripts()) == 1, f"the script of a refused job remains: {scripts()}")
    job.delete()
    refused(lambda: client.job("mnist"), "there is no job mnist")


def test_scripts_and_manifests(client, folder):
    script = pathlib.Path(folder, "my_train.py")
    script.write_text("import sys\nprint(sys.argv)\n")
    job = client.submit(script, arguments=["--lr", 0.1], image="x", spec=ELSEWHERE)
    expect(re.fullmatch("my-train-[0-9a-f]{4}", job.name), job.name)
    container = get(KIND, job.name)["spec"]["worker"]["template"]["spec"]["containers"][0]
    expect(container["command"] == ["python3", "/opt/lockstep-script/my_train.py", "--lr", "0.1"], f"{container}")
    job.delete()
    manifest = pathlib.Path(folder, "job.yaml")
    manifest.write_text((ROOT / "crds/examples/minimal.yaml").read_text())
    refused(lambda: client.submit(manifest), "submit_manifest")
    job = client.submit_manifest(manifest)
    expect(client.job("minimal").name == job.name == "minimal", job.name)
    job.delete()


def test_a_refusal_is_one_clear_line(client, folder):
    def lines(call, *parts):
        text = refused(call, *parts)
        expect("\n" not in text and "HTTP" not in text, text)
    lines(lambda: client.submit(train, arguments={"rate": 1}, image="x", name="a", spec={"nprocPerNod": 1}), "nprocPerNod")
    lines(lambda: client.submit(train, arguments={"rate": 1}, image="x", name="Upper"), "metadata.name")
    lines(lambda: client.submit(train, arguments={"rate": 1}, image="x", name="a", replicas=3, spec={"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}),
          "spec.worker.replicas")
    lines(lambda: client.submit(train, arguments={"rate": 1}), "image is required")
    lines(lambda: lockstep.Client("default", context="nowhere"), "nowhere")
    lines(lambda: lockstep.Client("default", kubeconfig=f"{folder}/absent"), "absent")
    lines(lambda: client.submit_manifest({"kind": "Job"}), "DistributedTrainingJob")
    expect(not client.jobs(), f"{client.jobs()}")
    until("the scripts are gone with their jobs", lambda: not scripts(), details=scripts)


@contextlib.contextmanager
def submitted(client, name, **spec):
    job = client.submit(train, arguments={"rate": 1}, image="x", name=name, spec={**ELSEWHERE, **spec})
    try:
        yield job
    finally:
        kubectl("delete", KIND, name, "--ignore-not-found")


class Waiting(threading.Thread):
    """job.wait() in a thread, and what it prints."""

    def __init__(self, job, **arguments):
        super().__init__(daemon=True)
        self.output, self.error, self._job, self._arguments = io.StringIO(), None, job, arguments
        self.start()

    def run(self):
        with contextlib.redirect_stdout(self.output):
            try:
                self._job.wait(**self._arguments)
            except Exception as error:
                self.error = error

    def until(self, text):
        until(f"{text!r} in the output", lambda: text in self.output.getvalue() or self.error)
        expect(text in self.output.getvalue(), f"no {text!r} in {self.output.getvalue()}: {self.error!r}")

    def end(self):
        self.join(LIMIT)
        expect(not self.is_alive(), f"it still waits: {self.output.getvalue()}")
        return self.output.getvalue()


def test_waits_for_completion(client):
    with submitted(client, "completes") as job:
        waiting = Waiting(job, timeout=LIMIT)
        waiting.until("Created")
        write_status("completes", state="Running", progress={"step": 250, "totalSteps": 1000, "loss": 0.5, "samplesPerSecond": 640},
                     rendezvous={"round": 1, "worldSize": 8}, goodput={"ratio": 0.9}, checkpoint={"step": 200, "time": NOW, "uri": "s3://b/200"})
        waiting.until("step 250 of 1000 (25 %)  loss 0.5  640 samples/s")
        metrics = job.metrics()
        expect((metrics["step"], metrics["worldSize"], metrics["goodput"]) == (250, 8, 0.9), f"{metrics}")
        expect(job.newest_checkpoint()["step"] == 200, f"{job.newest_checkpoint()}")
        complete("completes")
        expect("Complete" in waiting.end() and waiting.error is None, f"{waiting.error}")
        refused(job.suspend, "has ended (Complete)")


def test_a_failure_is_raised_with_its_message(client):
    with submitted(client, "fails") as job:
        waiting = Waiting(job, timeout=LIMIT)
        waiting.until("Created")
        write_status("fails", state="Stalled", conditions=[condition("Stalled", "ImagePullFailed", "x: not found")])
        waiting.until("ImagePullFailed: x: not found")
        write_status("fails", state="Failed", conditions=[condition("Failed", "MaxRestartsExceeded", "rank 3 exited with code 1")])
        waiting.end()
        expect(isinstance(waiting.error, lockstep.JobFailed), f"{waiting.error!r}")
        expect(str(waiting.error) == "fails failed (MaxRestartsExceeded): rank 3 exited with code 1", f"{waiting.error}")


def test_a_wait_outlives_the_api_server(client):
    with submitted(client, "outlives") as job, FailingApi(os.environ["KUBECONFIG"]) as network:
        tried = []

        def away_from_the_first_watch(method, path):
            if "watch=" in path or tried:
                tried.append(path)
                return 503
            return None
        network.fault = away_from_the_first_watch
        waiting = Waiting(lockstep.Client(SPACE, kubeconfig=network.kubeconfig).job("outlives"), timeout=LIMIT)
        until("it has tried again", lambda: len(tried) > 2 or waiting.error)
        write_status("outlives", state="Running", progress={"step": 5})
        network.fault = lambda method, path: None
        waiting.until("Running  step 5")
        complete("outlives")
        said = waiting.end()
        expect(waiting.error is None and said.count("waiting for it") == 1, f"{waiting.error!r}\n{said}")
        expect(job.status()["state"] == "Complete", f"{job.status()}")


def test_a_watch_that_has_expired_begins_again(client):
    with submitted(client, "expires") as job, FailingApi(os.environ["KUBECONFIG"]) as network:
        expired = []

        def gone_once(method, path):
            if "watch=" in path and not expired:
                expired.append(path)
                return 410
            return None
        network.fault = gone_once
        waiting = Waiting(lockstep.Client(SPACE, kubeconfig=network.kubeconfig).job("expires"), timeout=LIMIT)
        until("a watch has expired", lambda: expired or waiting.error)
        write_status("expires", state="Running", progress={"step": 5})
        waiting.until("Running  step 5")
        complete("expires")
        said = waiting.end()
        expect(waiting.error is None and "waiting for it" not in said, f"{waiting.error!r}\n{said}")
        expect(job.status()["state"] == "Complete", f"{job.status()}")


def test_a_wait_ends_at_its_timeout_and_at_a_deletion(client):
    with submitted(client, "deleted") as job:
        refused(lambda: job.wait(timeout=1, progress=False), "continues", error=TimeoutError)
        waiting = Waiting(job)
        waiting.until("Created")
        job.delete()
        waiting.end()
        expect("deleted" in str(waiting.error), f"{waiting.error!r}")


def test_suspend_resume_and_checkpoint(client):
    with submitted(client, "suspends") as job:
        job.suspend()
        expect(get(KIND, "suspends")["spec"]["suspend"] is True, "not suspended")
        refused(job.checkpoint, "suspends is suspended")
        job.resume()
        expect(get(KIND, "suspends")["spec"]["suspend"] is False, "not resumed")
        refused(lambda: job.checkpoint(timeout=1), error=TimeoutError)
        expect("lockstep.dev/save" in get(KIND, "suspends")["metadata"]["annotations"], "a script was not requested to save")
    manifest = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "saves"},
                "spec": {**ELSEWHERE, "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}},
                         "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 9},
                         "checkpoint": {"uri": "s3://b/a"}}}
    job = client.submit_manifest(manifest)
    refused(lambda: job.checkpoint(timeout=1), error=TimeoutError)
    requested = get(KIND, "saves")["metadata"]["annotations"]["lockstep.dev/save"]
    write_status("saves", checkpoint={"step": 5, "time": NOW, "uri": "s3://b/a/5"})  # an older one
    stored = []
    saving = threading.Thread(target=lambda: stored.append(job.checkpoint(timeout=LIMIT)), daemon=True)
    saving.start()
    until("a new request", lambda: get(KIND, "saves")["metadata"]["annotations"]["lockstep.dev/save"] != requested)
    write_status("saves", checkpoint={"step": 7, "time": "2126-01-02T03:04:05Z", "uri": "s3://b/a/7"})
    saving.join(LIMIT)
    expect(stored and stored[0]["step"] == 7, f"{stored}")
    job.delete()
