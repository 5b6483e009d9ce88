"""Programs that know nothing of Lockstep, as jobs: an ordinary Python DDP script in an image with Debian's Python, one process of
it killed; a Trainer of Hugging Face, stopped and killed; and shell scripts, one of them under the Pod Security Standard "restricted".
"""
import json
import pathlib

import jobs
import torch_python
from cases import expect
from programs import RESTRICTED, program, python_program

PROGRAMS = jobs.ROOT / "tests" / "integration" / "programs"
FRAMEWORKS = jobs.ROOT / "tests" / "integration" / "witness" / "frameworks"


def ddp(name, steps):
    """It saves into its ledger's folder."""
    return python_program(name, ["/programs/ddp.py", jobs.LEDGER, str(steps)], {"programs": PROGRAMS, "torch": torch_python.packages()}, "torch")


def trainer(steps):
    """A Trainer of Hugging Face, which saves where other jobs have their ledger."""
    folders = {"programs": FRAMEWORKS, "frameworks": torch_python.frameworks(), "torch": torch_python.packages()}
    return python_program("trainer", ["/programs/hugging_face.py", jobs.LEDGER, str(steps)], folders, "frameworks", "torch")


def pythons(job, pod):
    """Process ids of the script, inside the pod."""
    script = 'for p in /proc/[0-9]*; do read -r c <$p/comm && [ "$c" = python3 ] && echo ${p#/proc/}; done; true'
    return [int(pid) for pid in job.kubectl("exec", pod, "--container=trainer", "--", "sh", "-c", script).split()]


def test_an_unchanged_ddp_script_completes():
    with jobs.running(ddp("ddp", 200), with_ledger=True) as job:
        job.until_complete()
        made = {(r["rank"], r["step"]) for r in job.commits()}
        expect(made == {(rank, step) for rank in (0, 1) for step in range(200)}, f"{len(made)} steps of two ranks")


def test_starts_again_in_its_pods_when_a_process_is_killed():
    steps = 1200  # half a minute: it is killed long before the end
    with jobs.running(ddp("ddp-killed", steps), with_ledger=True) as job:
        first = job.until_ranks(2)
        job.until_step(50)
        job.until("its step in the status", lambda: job.status().get("progress", {}).get("step", 0) >= 50)
        uids = job.uids()
        victim = sorted(uids)[1]
        shared = job.kubectl("exec", victim, "--container=trainer", "--", "stat", "-f", "-c", "%b %S", "/dev/shm")
        blocks, size = map(int, shared.split())
        expect(blocks * size > 64 << 20, f"/dev/shm has {blocks} blocks of {size} bytes")  # what a container has of its own
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
        job.expect_true_goodput(precision=3)  # of the start of the program a heartbeat says when it ended


def test_hugging_faces_trainer_is_seen_and_judged_and_continues_from_its_own_checkpoint():
    with jobs.running(trainer(100000), with_ledger=True) as job:

        def stored():
            """The step of its newest checkpoint."""
            return max((int(folder.name.removeprefix("checkpoint-")) for folder in pathlib.Path(job.ledger).glob("checkpoint-*")), default=0)

        def progress():
            return job.status().get("progress", {})

        def restarts():
            return job.status().get("restarts", [])

        def said(message):
            """By how many ranks."""
            return sum(log.count(message) for log in job.logs().values())

        def recovered(number, victim, signal_name):
            """The record of what the signal did to the program in a pod, after which it makes new steps in parked interpreters."""
            job.until("a parked interpreter in each pod", lambda: said("an interpreter is parked") >= 2 * number)
            before = progress()["step"]
            job.kill({victim: pythons(job, victim)}, signal_name)
            # With its first step: only then have all programs of the next round started.
            record = job.until(f"recovery {number}", lambda: len(restarts()) == number and "recoverySeconds" in restarts()[0] and restarts()[0])
            job.until("a step after those before", lambda: progress()["step"] > before)
            parking = [line for log in job.logs().values() for line in log.splitlines() if "parked" in line]
            expect(said("the program starts in the parked interpreter") >= 2 * number, "a program began from nothing:\n" + "\n".join(parking))
            return record

        job.until("loss, epoch and number of steps", lambda: progress().get("totalSteps") == 100000 and "loss" in progress())
        job.until("a checkpoint of some steps", lambda: stored() >= 200 and progress().get("step", 0) >= 200)
        uids = job.uids()
        first, second = sorted(uids)
        killed = recovered(1, second, "KILL")
        expect(killed["exitCode"] == 137 and killed["ranks"] == [1], f"{killed}")
        expect(killed["lostSteps"] < 200, f"it began again from nothing: {killed}")
        stopped = recovered(2, first, "STOP")
        expect(stopped["cause"] == "Hang" and stopped["ranks"] == [0], f"{stopped}")
        expect(job.uids() == uids, "pods were replaced")
        print(f"Trainer in pods: killed {killed}; stopped {stopped}")


# Keeps each notice that it gets: one without a signal, and the one that comes with SIGTERM.
KEEPS_NOTICES = f"""
keep() {{ cat $LOCKSTEP_NOTICE_FILE >{jobs.LEDGER}/partial && mv {jobs.LEDGER}/partial {jobs.LEDGER}/$1; }}
trap 'keep at-the-end; exit 0' TERM
touch {jobs.LEDGER}/runs
while [ "$(cat $LOCKSTEP_NOTICE_FILE)" = '{{}}' ]; do sleep 0.1; done
keep before
while true; do sleep 0.1; done
"""
SPOT_TAINT = "aws-node-termination-handler/spot-itn"


def test_a_program_learns_that_its_node_departs_and_that_the_node_is_drained():
    with jobs.running(program("departs", ["sh", "-c", KEEPS_NOTICES], replicas=1), with_ledger=True) as job:
        def notice(name):
            path = pathlib.Path(job.ledger, name)
            return json.loads(job.until(f"the notice {name}", lambda: path.exists() and path.read_text()))

        job.until("the program", pathlib.Path(job.ledger, "runs").exists)
        [node] = {pod["spec"]["nodeName"] for pod in job.pods()}
        try:
            jobs.kubectl("taint", "node", node, f"{SPOT_TAINT}=i-1:NoSchedule")
            departs = notice("before")
            jobs.kubectl("drain", node, f"--pod-selector=lockstep.dev/job={job.name}", "--force", "--delete-emptydir-data")
            ends = notice("at-the-end")
        finally:
            jobs.kubectl("uncordon", node)
            jobs.kubectl("taint", "node", node, f"{SPOT_TAINT}-")
    expect(departs["reason"] == "NodeDeparts" and departs["detail"] == f"the node has the taint {SPOT_TAINT}", f"{departs}")
    expect(ends["reason"] == "Termination" and 0 < ends["secondsLeft"] <= 120, f"{ends}")


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
