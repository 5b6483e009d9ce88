"""Real workers that wait for a pod without a place: longer than rendezvous.joinTimeoutSeconds, and the job trains when the place is there.

Needs KUBECONFIG of an administrator. The cases do what the kubelets would: they start `lockstep worker` for a pod, and say what becomes of it.
"""
import contextlib
import json
import os
import pathlib
import subprocess

import pytest

from build_folder import BIN, BUILD
from cases import ENDS_WITH_US, LIMIT, expect, until
from kube_api import MERGE, api
from operators import JOBS, OperatedJob, job, set_pod_quota
from workers import Worker

PROGRAM = BUILD / "operator/lockstep-operator"
JOIN_TIMEOUT = 1
NO_ROUND = 5  # ExitCode::kRendezvous


class Kubelet:
    """Runs the pods of a job on this machine."""

    def __init__(self, folder, operated):
        self.folder, self.operated = pathlib.Path(folder), operated
        self.running = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()
                process.wait(LIMIT)

    def config_of(self, pod):
        """The worker's, of the operator's own address and a port that the system chooses: here all pods have one address."""
        path = f"/api/v1/namespaces/{self.operated.namespace}/configmaps/a-config"
        config = json.loads(until("the configuration", lambda: api().request("GET", path)[1].get("data"))["config.json"])
        config["rendezvous"]["url"] = f"http://127.0.0.1:{self.operated.operator.await_record('leading')['rendezvous_port']}"
        config["metricsPort"] = 0
        file = self.folder / f"{pod}.json"
        file.write_text(json.dumps(config))
        return file

    def start(self, pod):
        name, created = pod["metadata"]["name"], api().request("GET", JOBS.format(self.operated.namespace) + "/a")[1]
        token = self.folder / f"{name}.token"
        token.write_text(Worker(self.operated.namespace, created, pod).token)
        environment = {"CONFIG": self.config_of(name), "TOKEN_FILE": token, "POD_NAME": name, "POD_UID": pod["metadata"]["uid"], "POD_IP": "127.0.0.1",
                       "NODE_NAME": "node", "SLOT": pod["metadata"]["labels"]["lockstep.dev/slot"], "TERMINATION_LOG": self.folder / f"{name}.end"}
        with (self.folder / f"{name}.log").open("w") as log:
            self.running[name] = subprocess.Popen(
                [*ENDS_WITH_US, BIN / "lockstep", "worker"], stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **{f"LOCKSTEP_{key}": str(value) for key, value in environment.items()}})
        self.say(name, "Running", {"running": {}})

    def say(self, name, phase, state):
        container = {"name": "trainer", "image": "", "imageID": "", "ready": phase == "Running", "restartCount": 0, "state": state}
        status, answer = api().request("PATCH", f"/api/v1/namespaces/{self.operated.namespace}/pods/{name}/status",
                                       {"status": {"phase": phase, "containerStatuses": [container]}}, MERGE)
        expect(status == 200, answer)

    def end(self, name):
        """Of a worker that ends by itself: its exit code, of which the API server hears, too."""
        code = self.running[name].wait(LIMIT)
        message = (self.folder / f"{name}.end").read_text() if (self.folder / f"{name}.end").exists() else ""
        self.say(name, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code, "message": message}})
        return code

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()


@contextlib.contextmanager
def fixed_size_job(folder, before=lambda namespace: None):
    """A job of two pods, its kubelet, and its first pod, whose worker waits for the other one."""
    document = job("a", 2, rendezvous={"joinTimeoutSeconds": JOIN_TIMEOUT})
    del document["spec"]["elasticPolicy"]
    document["spec"]["training"].update(globalBatchSize=64, data={"format": "synthetic", "synthetic": {
        "samples": 2000, "testSamples": 200, "shape": [1, 28, 28], "classes": 10}})
    operated = OperatedJob(api(), PROGRAM, "waits", document)
    before(operated.namespace)
    with operated, Kubelet(folder, operated) as kubelet:
        first = operated.until("its first pod", lambda: {pod["metadata"]["name"]: pod for pod in operated.pods()}.get("a-worker-0"))
        kubelet.start(first)
        until("its worker waits", lambda: "1 of 2 pods have not started" in kubelet.log("a-worker-0"), details=lambda: kubelet.log("a-worker-0"))
        yield operated, kubelet


def expect_to_wait(kubelet):
    """For several times the limit."""
    with pytest.raises(subprocess.TimeoutExpired):
        kubelet.running["a-worker-0"].wait(5 * JOIN_TIMEOUT)


def expect_to_train(operated, kubelet):
    second = operated.until("its other pod", lambda: {pod["metadata"]["name"]: pod for pod in operated.pods()}.get("a-worker-1"))
    kubelet.start(second)
    for name in ("a-worker-0", "a-worker-1"):
        code = kubelet.end(name)
        expect(code == 0, f"{name} ends with {code}: {kubelet.log(name)}")

    def status():
        return api().request("GET", JOBS.format(operated.namespace) + "/a")[1].get("status", {})
    operated.until("it is complete", lambda: status().get("state") == "Complete")
    expect(status()["progress"]["step"] == 10, status())
    expect(status().get("attempt", 0) == 0 and not status().get("restarts"), f"the wait was charged: {status()}")


def test_a_node_that_comes_late_costs_nothing(folder):
    with fixed_size_job(folder) as (operated, kubelet):
        operated.until("both pods", lambda: len(operated.pods()) == 2)
        expect_to_wait(kubelet)
        expect_to_train(operated, kubelet)


def test_quota_that_comes_late_costs_nothing(folder):
    with fixed_size_job(folder, lambda namespace: set_pod_quota(api(), namespace, 1)) as (operated, kubelet):
        expect_to_wait(kubelet)
        expect(len(operated.pods()) == 1, "the quota admits one pod")
        set_pod_quota(api(), operated.namespace, 2)
        expect_to_train(operated, kubelet)


def test_a_pod_that_runs_and_does_not_join_is_waited_for_no_longer_than_the_limit(folder):
    with fixed_size_job(folder) as (operated, kubelet):
        operated.until("both pods", lambda: len(operated.pods()) == 2)
        kubelet.say("a-worker-1", "Running", {"running": {}})
        code = kubelet.end("a-worker-0")
        expect(code == NO_ROUND, f"it ends with {code}: {kubelet.log('a-worker-0')}")
        operated.until("the failure is charged", lambda: api().request("GET", JOBS.format(operated.namespace) + "/a")[1]["status"].get("attempt") == 1)
