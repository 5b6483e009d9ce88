"""Programs that know nothing of Lockstep, as jobs: an ordinary Python DDP script in an image with Debian's Python, one process of
it killed, and a shell script under the Pod Security Standard "restricted".
"""
import subprocess

import jobs
import torch_python
from cases import LIMIT, expect

PROGRAMS = jobs.ROOT / "tests" / "integration" / "programs"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 1000,
              "readOnlyRootFilesystem": True, "seccompProfile": {"type": "RuntimeDefault"}}


def program(name, command, image="localhost/busybox:1", replicas=2, **container):
    return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": name}, "spec": {
        "worker": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "trainer", "image": image, "imagePullPolicy": "IfNotPresent", "command": command,
             "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}, **container}]}}}}}


def ddp(name, steps):
    """The script and PyTorch are files of this machine, which the nodes of the test cluster see; it saves into its ledger's folder."""
    archive = subprocess.run([jobs.ROOT / "tests/e2e/python-image"], check=True, capture_output=True, text=True, timeout=LIMIT).stdout.strip()
    subprocess.run([jobs.ROOT / "tests/cluster/cluster", "load-image", archive], check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
    folders = {"programs": PROGRAMS, "torch": torch_python.packages()}
    job = program(
        name, ["python3", "/programs/ddp.py", jobs.LEDGER, str(steps)], "localhost/python:1", securityContext=RESTRICTED,
        env=[{"name": "PYTHONPATH", "value": "/torch"}],
        volumeMounts=[*({"name": name, "mountPath": f"/{name}", "readOnly": True} for name in folders), {"name": "tmp", "mountPath": "/tmp"}])
    job["spec"]["worker"]["template"]["spec"]["volumes"] = [
        *({"name": name, "hostPath": {"path": str(path)}} for name, path in folders.items()), {"name": "tmp", "emptyDir": {}}]
    return job


def pythons(job, pod):
    """Process ids of the script, inside the pod."""
    script = 'for p in /proc/[0-9]*; do read -r c <$p/comm && [ "$c" = python3 ] && echo ${p#/proc/}; done; true'
    return [int(pid) for pid in job.kubectl("exec", pod, "--container=trainer", "--", "sh", "-c", script).split()]


def test_an_unchanged_ddp_script_completes():
    with jobs.running(ddp("ddp", 200), with_ledger=True) as job:
        job.until_complete()
        made = {(r["rank"], r["step"]) for r in job.commits()}
        expect(made == {(rank, step) for rank in (0, 1) for step in range(200)}, f"{len(made)} steps of two ranks")


def test_begins_anew_in_its_pods_when_a_process_is_killed():
    steps = 1200  # half a minute: it is killed long before the end
    with jobs.running(ddp("ddp-killed", steps), with_ledger=True) as job:
        first = job.until_ranks(2)
        job.until_step(50)
        job.until("its step in the status", lambda: job.status().get("progress", {}).get("step", 0) >= 50)
        uids = job.uids()
        victim = sorted(uids)[1]
        job.kill({victim: pythons(job, victim)})
        job.until_ranks(2, after=first)
        expect(job.uids() == uids, "pods were replaced")
        records = job.until("its record in status.restarts", lambda: job.status().get("restarts"))
        expect(len(records) == 1 and records[0]["exitCode"] == 137 and records[0]["level"] in ("Respawn", "Checkpoint"), f"{records}")
        job.until_condition("Progressing")
        job.until_complete()
        made = {r["step"] for r in job.commits()}
        expect(made == set(range(steps)), f"{len(made)} steps")
        job.until("the last step in the status", lambda: job.status()["progress"]["step"] == steps)


def test_an_exit_code_fails_the_job_by_a_rule():
    job = program("coded", ["sh", "-c", "echo the reason >&2; exit 42"], replicas=1)
    job["spec"]["failurePolicy"] = {"rules": [
        {"name": "bad-data", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
    with jobs.running(job) as started:
        failed = started.until_condition("Failed")
        expect(failed["reason"] == "FailurePolicy" and "exited with code 42" in failed["message"], f"{failed}")


def test_runs_under_restricted_pod_security():
    name = jobs.namespace()
    jobs.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    try:
        script = 'echo "$RANK of $WORLD_SIZE by $MASTER_ADDR:$MASTER_PORT"'
        job = program("restricted", ["sh", "-c", script], securityContext=RESTRICTED)
        job["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
        with jobs.running(job) as started:
            started.until_complete()  # which the ranks say; the kubelet says later what became of the pods
            started.until("pods that succeeded", lambda: all(pod["status"]["phase"] == "Succeeded" for pod in started.pods()))
            logs = "".join(started.logs().values())
            expect("0 of 2 by " in logs and "1 of 2 by " in logs, logs)
    finally:
        jobs.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce-")
