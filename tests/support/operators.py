"""What tests of the operator program share: operators as processes, jobs whose pods nobody schedules."""
import json
import os
import pathlib
import subprocess
import tempfile
import time

from cases import until

ROOT = pathlib.Path(__file__).resolve().parents[2]

JOBS = "/apis/lockstep.dev/v1alpha1/namespaces/{}/distributedtrainingjobs"


def job(name, replicas, **sections):
    template = {"spec": {"schedulerName": "nobody", "containers": [{"name": "trainer", "image": "localhost/none:1"}]}}
    return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": name},
            "spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": max(replicas, 8)},
                     "worker": {"replicas": replicas, "template": template},
                     "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 10000,
                                  "steps": 10}, **sections}}


class Operator:
    """The program, from its start until the end of the `with`."""

    def __init__(self, program, *flags, kubeconfig=None):
        self.log = tempfile.NamedTemporaryFile(prefix="operator-", suffix=".log")
        environment = dict(os.environ, **({"KUBECONFIG": kubeconfig} if kubeconfig else {}))
        self.process = subprocess.Popen(
            [program, "--metrics-address=127.0.0.1:0", "--rendezvous-address=127.0.0.1:0",
             *([] if any(f.startswith("--rendezvous-url") for f in flags) else ["--rendezvous-url=http://127.0.0.1:1"]), *flags],
            stdout=self.log, stderr=subprocess.STDOUT, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)
        self.log.close()

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def records(self, message):
        return [json.loads(line) for line in self.text().splitlines() if f'"{message}"' in line]

    def await_record(self, message, limit=30):
        return until(f"the operator says: {message}", lambda: self.records(message), limit, 0.005, self.text)[0]


def pods_of(api, namespace, name):
    selector = f"labelSelector=lockstep.dev%2Fjob%3D{name}&limit=5000"
    return api.request("GET", f"/api/v1/namespaces/{namespace}/pods?{selector}")[1]["items"]


def make_namespace(api, prefix):
    name = f"{prefix}-{time.monotonic_ns() % 10**9}"
    status, answer = api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status == 201, answer
    return name


def create(api, namespace, document):
    status, answer = api.request("POST", JOBS.format(namespace), document)
    assert status == 201, answer
    return answer
