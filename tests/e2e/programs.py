"""Jobs that run a program of the user's; for Python, in an image with Debian's Python that knows nothing of Lockstep."""
import subprocess

import jobs
from cases import LIMIT

RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 1000,
              "readOnlyRootFilesystem": True, "seccompProfile": {"type": "RuntimeDefault"}}


def program(name, command, image="localhost/busybox:1", replicas=2, **container):
    return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": name}, "spec": {
        "worker": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "trainer", "image": image, "imagePullPolicy": "IfNotPresent", "command": command,
             "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}, **container}]}}}}}


def python_program(name, arguments, folders, *path):
    """A job of two pods in an image with Debian's Python. The folders of this machine, which the nodes of the test cluster see, are
    mounted at /NAME; those named in `path`, on PYTHONPATH, at /NAME/site-packages, as packages are installed."""
    mounts = {folder: f"/{folder}/site-packages" if folder in path else f"/{folder}" for folder in folders}
    archive = subprocess.run([jobs.ROOT / "tests/e2e/python-image"], check=True, capture_output=True, text=True, timeout=LIMIT).stdout.strip()
    subprocess.run([jobs.ROOT / "tests/cluster/cluster", "load-image", archive], check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
    job = program(
        name, ["python3", *arguments], "localhost/python:1", securityContext=RESTRICTED,
        env=[{"name": "PYTHONPATH", "value": ":".join(mounts[folder] for folder in path)}, {"name": "HOME", "value": "/tmp"},
             {"name": "HF_HUB_OFFLINE", "value": "1"}],
        volumeMounts=[*({"name": name, "mountPath": mount, "readOnly": True} for name, mount in mounts.items()), {"name": "tmp", "mountPath": "/tmp"}])
    job["spec"]["worker"]["template"]["spec"]["volumes"] = [
        *({"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()), {"name": "tmp", "emptyDir": {}}]
    return job
