"""A metrics-server beside the test cluster: a process of this machine, which the API server hands metrics.k8s.io on to."""
import contextlib
import os
import pathlib
import socket
import subprocess
import tempfile
import urllib.parse

import jobs
from cases import ENDS_WITH_US

BUILD = jobs.ROOT / "tests" / "e2e" / "metrics-server" / "build.sh"
RESOURCES = ["pods", "nodes"]


def program():
    """None where build.sh has not run."""
    folder = subprocess.run([BUILD, "--print-bin"], capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    path = pathlib.Path(folder, "metrics-server")
    return path if path.exists() else None


def address():
    """Of this machine, as the cluster sees it, with a port that is free."""
    server = jobs.kubectl("config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}")
    api = urllib.parse.urlparse(server)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route, socket.socket() as free:
        route.connect((api.hostname, api.port))
        free.bind((route.getsockname()[0], 0))
        return free.getsockname()


def objects(host, port):
    """As in metrics-server's own manifests, but for a Service that names no pods."""
    return [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
         "metadata": {"name": "system:aggregated-metrics-reader",
                      "labels": {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")}},
         "rules": [{"apiGroups": ["metrics.k8s.io"], "resources": RESOURCES, "verbs": ["get", "list", "watch"]}]},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics-server", "namespace": "kube-system"},
         "spec": {"type": "ExternalName", "externalName": host, "ports": [{"port": port}]}},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
         "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                  "insecureSkipTLSVerify": True, "service": {"name": "metrics-server", "namespace": "kube-system", "port": port}}},
    ]


@contextlib.contextmanager
def running():
    """It has numbers of a pod after two looks at it, ten seconds apart: nothing shorter is allowed."""
    host, port = address()
    manifest = jobs.json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(host, port)})
    config = os.environ["KUBECONFIG"]
    with tempfile.TemporaryDirectory(prefix="lockstep-metrics-") as folder, open(f"{folder}/log", "w+") as log:
        server = subprocess.Popen(
            [*ENDS_WITH_US, program(), f"--kubeconfig={config}", f"--authentication-kubeconfig={config}",
             f"--authorization-kubeconfig={config}", f"--bind-address={host}", f"--secure-port={port}", f"--cert-dir={folder}",
             f"--kubelet-certificate-authority={os.environ['LOCKSTEP_CLUSTER']}/pki/ca.crt",
             "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=10s",
             "--kubelet-request-timeout=5s"], stdout=log, stderr=log)
        try:
            jobs.kubectl("apply", "--filename=-", stdin=manifest)
            yield
        except AssertionError as failure:
            log.seek(0)
            raise AssertionError(f"{failure}\nmetrics-server:\n{log.read()[-3000:]}") from failure
        finally:
            # First of all what names it: no namespace can be deleted while an API is registered that does not answer.
            jobs.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=manifest)
            server.terminate()
            server.wait(30)
