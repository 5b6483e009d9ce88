"""What tests of the operator program share: operators as processes, with the chart's rights; jobs whose pods nobody schedules."""
import json
import os
import pathlib
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import rights
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


def release_of(*flags, whole_cluster=False):
    """That whose operator has these flags, as far as its roles go; with `whole_cluster` it has the roles for all namespaces all the same."""
    given = dict(flag.split("=", 1) for flag in flags if "=" in flag)
    watched = given.get("--watch-namespaces", "")
    values = {f"watchNamespaces={{{watched}}}": watched and not whole_cluster,
              "namespaceSelector.matchLabels.any=label": "--namespace-selector" in given,
              "metrics.authorization=true": "--secure-metrics-address" in given,
              f"certificate.secretName={given.get('--certificate-secret')}": "--certificate-secret" in given}
    return rights.Release(given.get("--namespace") or watched.split(",")[0], given.get("--lease-name", "lockstep-leader").removesuffix("-leader"),
                          tuple(value for value, is_set in values.items() if is_set))


def kubeconfig_for(*flags, whole_cluster=False):
    """Of an account of the operator's own namespace with the rights of the chart for these flags."""
    return rights.kubeconfig(release_of(*flags, whole_cluster=whole_cluster))


class Operator:
    """The program, from its start until the end of the `with`, as the account that `kubeconfig_for` makes unless one is given."""

    def __init__(self, program, *flags, kubeconfig=None, pod=None):
        self.folder = tempfile.TemporaryDirectory(prefix="operator-")
        self.log = open(f"{self.folder.name}/output.log", "wb")
        # As in the image, where OpenSSL finds no file of public authorities: reading one costs 20 ms for each connection.
        environment = dict(os.environ, SSL_CERT_FILE="/dev/null", KUBECONFIG=kubeconfig or kubeconfig_for(*flags), TMPDIR=self.folder.name,
                           **({"POD_NAME": pod} if pod else {}))
        # In a group of its own: when the shell that started the test ends first, the kernel sends SIGHUP and SIGCONT to a group with a stopped process.
        self.process = subprocess.Popen(
            [*ENDS_WITH_US, program, "--metrics-address=127.0.0.1:0", "--rendezvous-address=127.0.0.1:0",
             *([] if any(f.startswith("--rendezvous-url") for f in flags) else ["--rendezvous-url=http://127.0.0.1:1"]), *flags],
            stdout=self.log, stderr=subprocess.STDOUT, env=environment, process_group=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        self.log.close()
        self.folder.cleanup()  # also of the files of an operator that was killed

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


def scraped(port, token=None, path="/metrics", scheme="https", host="127.0.0.1"):
    """Status and body."""
    request = urllib.request.Request(f"{scheme}://{host}:{port}{path}", headers={"Authorization": f"Bearer {token}"} if token else {})
    # The certificate is made at the start of the process.
    trusting = urllib.request.HTTPSHandler(context=ssl._create_unverified_context())
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({}), trusting).open(request, timeout=LIMIT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


class OperatedJob:
    """The job `a` in a namespace of its own, and an operator for it."""

    def __init__(self, api, program, prefix, document, whole_cluster=False):
        self.api, self.document, self.namespace = api, document, make_namespace(api, prefix)
        flag = f"--watch-namespaces={self.namespace}"
        self.operator = Operator(program, flag, kubeconfig=kubeconfig_for(flag, whole_cluster=whole_cluster))

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


def set_pod_quota(api, namespace, pods):
    """It holds as soon as the API server counts the pods."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": str(pods)}}}
    if api.request("GET", path + "/pods")[0] == 200:
        status, answer = api.request("PATCH", path + "/pods", {"spec": quota["spec"]}, MERGE)
        assert status == 200, answer
    else:
        status, answer = api.request("POST", path, quota)
        assert status == 201, answer
    until("the quota is counted", lambda: api.request("GET", path + "/pods")[1].get("status", {}).get("hard") == {"pods": str(pods)})


def make_namespace(api, prefix):
    name = f"{prefix}-{time.monotonic_ns() % 10**9}"
    status, answer = api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status == 201, answer
    return name


def create(api, namespace, document):
    status, answer = api.request("POST", JOBS.format(namespace), document)
    assert status == 201, answer
    return answer
