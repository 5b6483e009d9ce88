"""What tests of the operator program share: operators as processes, jobs whose pods nobody schedules."""
import json
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.request

from cases import ENDS_WITH_US, LIMIT, until
from kube_api import MERGE

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

    def __init__(self, program, *flags, kubeconfig=None, pod=None):
        self.log = tempfile.NamedTemporaryFile(prefix="operator-", suffix=".log")
        # As in the image, where OpenSSL finds no file of public authorities: reading one costs 20 ms for each connection.
        environment = dict(os.environ, SSL_CERT_FILE="/dev/null", **({"KUBECONFIG": kubeconfig} if kubeconfig else {}),
                           **({"POD_NAME": pod} if pod else {}))
        self.process = subprocess.Popen(
            [*ENDS_WITH_US, program, "--metrics-address=127.0.0.1:0", "--rendezvous-address=127.0.0.1:0",
             *([] if any(f.startswith("--rendezvous-url") for f in flags) else ["--rendezvous-url=http://127.0.0.1:1"]), *flags],
            stdout=self.log, stderr=subprocess.STDOUT, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        self.log.close()

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def records(self, message):
        return [json.loads(line) for line in self.text().rpartition("\n")[0].splitlines() if f'"{message}"' in line]

    def await_record(self, message, limit=LIMIT):
        return until(f"the operator says: {message}", lambda: self.records(message), limit, 0.005, self.text)[0]

    def metrics(self):
        """Series with their labels → value."""
        port = self.await_record("operator started")["metrics_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    def writes(self):
        return sum(value for series, value in self.metrics().items()
                   if series.startswith("rest_client_requests_total") and 'method="GET"' not in series and 'WATCH' not in series)


class OperatedJob:
    """The job `a` in a namespace of its own, and an operator for it."""

    def __init__(self, api, program, prefix, document):
        self.api, self.document, self.namespace = api, document, make_namespace(api, prefix)
        self.operator = Operator(program, f"--watch-namespaces={self.namespace}")

    def __enter__(self):
        self.operator.__enter__()
        create(self.api, self.namespace, self.document)
        return self

    def __exit__(self, *error):
        self.operator.__exit__(*error)

    def until(self, what, holds):
        return until(what, holds, details=self.operator.text)

    def pods(self):
        return pods_of(self.api, self.namespace, "a")

    def patch(self, spec):
        status, answer = self.api.request("PATCH", JOBS.format(self.namespace) + "/a", {"spec": spec}, MERGE)
        assert status == 200, answer


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
