#!/usr/bin/env python3
"""How long from a job's creation until its pods exist, on a real control plane: Lockstep's operator beside Kubernetes' own Job.

pods_created.py [BUILD_DIR]    starts a control plane of its own and the operator of the release build; prints medians and the ratio

Both sides take turns in one run. The time is that between the answer to the POST being asked for and the watch's event of the last
pod, seen by the same client.
"""
import concurrent.futures
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from kube_api import Api  # noqa: E402

PODS = 8
TURNS = 15
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "none"}]}}
DEADLINE = 30


def training_job(name):
    return "/apis/lockstep.dev/v1alpha1/namespaces/default/distributedtrainingjobs", {
        "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": name},
        "spec": {"worker": {"replicas": PODS, "template": TEMPLATE},
                 "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 10}}}


def kubernetes_job(name):
    return "/apis/batch/v1/namespaces/default/jobs", {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": PODS, "completions": PODS, "completionMode": "Indexed", "template": TEMPLATE}}


def seconds_to_pods(api, make, label, name):
    """Creates the job and waits for its pods; deletes it again."""
    path, job = make(name)
    seen = set()

    def all_there(event):
        if event["type"] == "ADDED":
            seen.add(event["object"]["metadata"]["name"])
        return len(seen) == PODS

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        selector = f"/api/v1/namespaces/default/pods?watch=true&labelSelector={label}%3D{name}&timeoutSeconds={DEADLINE}"
        last = pool.submit(api.watch, selector, all_there)
        time.sleep(0.3)  # not a synchronisation that anything hangs on: a watch that begins late sees the pods all the same
        start = time.monotonic()
        status, answer = api.request("POST", path, job)
        assert status == 201, answer
        taken = last.result(DEADLINE + 5) - start
    api.request("DELETE", f"{path}/{name}?propagationPolicy=Background")
    return taken


def resident_mb(pid):
    line = next(s for s in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if s.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release")
    cluster = ROOT / "tests/cluster/cluster"
    folder = subprocess.run([cluster, "up", "--owner", str(os.getpid())], check=True, capture_output=True, text=True).stdout.strip()
    os.environ["KUBECONFIG"] = f"{folder}/pki/admin.kubeconfig"
    environment = subprocess.run([cluster, "env", "--dir", folder], check=True, capture_output=True, text=True).stdout
    os.environ["PATH"] = subprocess.run(["bash", "-c", f"{environment}\necho $PATH"], check=True, capture_output=True,
                                        text=True).stdout.strip()
    operator = api = None
    try:
        subprocess.run(["kubectl", "apply", "--server-side", f"--filename={ROOT}/crds/distributedtrainingjobs.yaml"], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["kubectl", "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"], check=True,
                       stdout=subprocess.DEVNULL)
        log = tempfile.TemporaryFile()
        operator = subprocess.Popen([build / "bin/lockstep-operator", "--metrics-address", "127.0.0.1:0", "--rendezvous-address",
                                     "127.0.0.1:0", "--rendezvous-url", "http://127.0.0.1:1"], stdout=log, stderr=log)
        with tempfile.TemporaryDirectory() as sockets:
            api = Api(sockets)
            seconds_to_pods(api, training_job, "lockstep.dev/job", "warm-up")  # waits for the operator's start
            ours, theirs = [], []
            for turn in range(TURNS):
                ours.append(seconds_to_pods(api, training_job, "lockstep.dev/job", f"ours-{turn}"))
                theirs.append(seconds_to_pods(api, kubernetes_job, "batch.kubernetes.io/job-name", f"theirs-{turn}"))
        for name, times in (("Lockstep", ours), ("Kubernetes Job", theirs)):
            print(f"{name}: {PODS} pods created after {1000 * statistics.median(times):.0f} ms "
                  f"({1000 * min(times):.0f} to {1000 * max(times):.0f}), {TURNS} turns")
        print(f"ratio of the medians: {statistics.median(ours) / statistics.median(theirs):.2f}")
        print(f"operator resident memory after {TURNS} jobs: {resident_mb(operator.pid):.1f} MB")
    finally:
        for process in (operator, api and api.proxy):
            if process:
                process.terminate()
                process.wait(DEADLINE)
        subprocess.run([cluster, "down", "--dir", folder], check=True)


if __name__ == "__main__":
    main()
