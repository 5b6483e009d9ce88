"""A script that calls `lockstep.join`, in three pods: the processes of the other ranks continue, whether a process is killed, a pod is deleted, or the job
is scaled.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import jobs
import torch_python
from build_folder import BUILD
from cases import LIMIT, expect
from jobs import ledger
from programs import python_program

SCRIPTS = jobs.ROOT / "tests" / "integration" / "python_package"
SAMPLES, BATCH = 2017, 32  # as train.py has them
PAUSE = 0.3  # seconds before each step while the file `slowly` exists, and more in the second half
RANKS, EPOCHS = 3, 8  # 512 steps: seconds, and many minutes while the file `slowly` exists


@contextlib.contextmanager
def train(name):
    """The manifest of a job that runs train.py. It writes into its ledger's folder."""
    with tempfile.TemporaryDirectory(prefix="lockstep-package-", dir=os.environ["LOCKSTEP_CLUSTER"]) as folder:
        package = shutil.copytree(BUILD / "python", f"{folder}/package")  # a copy, because its Python files are symbolic links to the sources
        folders = {"scripts": SCRIPTS, "package": package, "torch": torch_python.packages()}
        job = python_program(name, ["/scripts/train.py", jobs.LEDGER, str(EPOCHS), "saves"], folders, "package", "torch")
        job["spec"]["worker"]["replicas"] = RANKS
        job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": RANKS}
        yield job


def members(job, number):
    """rank -> (pod, process id of the script as this machine sees it), of those that train in the round. The ledger's files have the process ids
    inside the pods in their names; another pod of the same name may have the same one."""
    running = jobs.processes("python3")
    found = {}
    for path in pathlib.Path(job.ledger).glob("*.jsonl"):
        if any(r["event"] == "commit" and r["round"] == number for r in ledger.file_of(path).read()):
            pod, pid, rank = path.stem.rsplit("-", 2)
            found[int(rank)] = (pod, *(outer for outer, inner in running.get(pod, []) if inner == int(pid)))
    return found


def expect_kept(before, after, lost):
    """All processes but the lost one still train."""
    kept = set(before.values()) & set(after.values())
    expect(kept == set(before.values()) - {lost}, f"the processes were {before}, are {after}")


def rounds_after(job, moment, number):
    """round -> (how many ranks made steps in it, seconds from the moment to the first of these steps), of the rounds after that one."""
    found = {}
    for commit in job.commits():
        if commit["round"] > number:
            ranks, times = found.setdefault(commit["round"], (set(), []))
            ranks.add(commit["rank"])
            times.append(commit["time"])
    return {later: (len(ranks), round(min(times) - moment, 2)) for later, (ranks, times) in sorted(found.items())}


def repeated_steps(job):
    """Steps that were finished in more than one round."""
    return len({(r["step"], r["round"]) for r in job.commits()}) - len({r["step"] for r in job.commits()})


def until_state_from_a_peer(job, pod):
    """The last process in that pod that had no state has received it from another rank, by its supervisor's log."""
    def sources():
        lines = [json.loads(line) for line in job.kubectl("logs", pod).splitlines() if line.startswith("{")]
        return [line["state_from"] for line in lines if line["message"] == "rank entered the round" and line["state_from"] != "kept"]
    job.until(f"a state from a peer in {pod}", lambda: sources()[-1:] == ["peer"])


def test_the_other_ranks_keep_their_processes():
    with train("package") as manifest, jobs.running(manifest, with_ledger=True) as job:
        slowly = pathlib.Path(job.ledger, "slowly")
        slowly.touch()
        first = job.until_ranks(RANKS)
        job.until("step and loss in the status", lambda: {"step", "loss"} <= job.status().get("progress", {}).keys())
        size, = job.until("its speed in status.scaling", lambda: job.status().get("scaling"))
        expect(size["worldSize"] == RANKS and 1 < size["samplesPerSecond"] < BATCH / PAUSE, f"a step takes {PAUSE} s and more: {size}")
        before, uids = members(job, first), job.uids()

        pod, pid = victim = before[0]  # it serves the store of the round
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        second = job.until_ranks(RANKS, after=first)
        after = members(job, second)
        expect_kept(before, after, victim)
        expect(job.uids() == uids, "pods were replaced")
        until_state_from_a_peer(job, pod)
        record, = job.until("its recovery in status.restarts", lambda: [r for r in job.status().get("restarts", []) if "recoverySeconds" in r])
        expect((record["exitCode"], record["level"], record["ranks"]) == (137, "Respawn", [0]), f"{record}")
        print(f"     killed process: round -> (ranks, seconds to its first step): {rounds_after(job, killed, first)}; {record}", flush=True)

        before, victim = after, after[1]
        deleted = time.time()
        job.kubectl("delete", "pod", victim[0], "--wait=false")
        third = job.until_ranks(RANKS, after=second)
        expect_kept(before, members(job, third), victim)
        until_state_from_a_peer(job, victim[0])
        record, = job.until("its record in status.restarts", lambda: [r for r in job.status()["restarts"] if r["exitCode"] == 143 and "recoverySeconds" in r])
        expect(record["lostSteps"] == 0, f"all ranks left after the same step: {record}")
        print(f"     deleted pod: round -> (ranks, seconds to its first step): {rounds_after(job, deleted, second)}; {record}", flush=True)

        number, before = third, members(job, third)
        for replicas in (RANKS - 1, RANKS):
            job.kubectl("scale", "dtj", "package", f"--replicas={replicas}")
            number = job.until_ranks(replicas, after=number)
            after = members(job, number)
            expect(len(set(before.values()) & set(after.values())) == RANKS - 1, f"scaled to {replicas}: the processes were {before}, are {after}")
            new, before = set(after.values()) - set(before.values()), after
        until_state_from_a_peer(job, new.pop()[0])

        said = subprocess.run([BUILD / "bin" / "kubectl-lockstep", "checkpoint", "package", "--namespace", jobs.namespace(), "--wait"],
                              capture_output=True, text=True, timeout=LIMIT, check=False)
        expect(said.returncode == 0 and f"file://{jobs.LEDGER}/checkpoints/step-" in said.stdout, f"{said}")

        slowly.unlink()
        job.until_complete()
        problems = ledger.check_exactly_once(job.ledger, SAMPLES, BATCH, EPOCHS)
        expect(not problems, "; ".join(problems))
        print(f"     finished steps that were done again: {repeated_steps(job)}", flush=True)
        job.until("the last step in the status", lambda: job.status()["progress"]["step"] == EPOCHS * -(-SAMPLES // BATCH))
        final = [json.loads(pathlib.Path(job.ledger, f"final-{rank}.json").read_text()) for rank in range(RANKS)]
        expect(all(each["weights"] == final[0]["weights"] for each in final), "the ranks ended with different weights")
        evaluation = job.until("the evaluation in the status", lambda: job.status()["progress"].get("evaluation"))
        expect(abs(evaluation["loss"] - final[0]["loss"]) < 1e-6, f"{evaluation}, it was {final[0]['loss']}")
        record, = (r for r in job.status()["restarts"] if r["exitCode"] == 137)
        expect(record["recoverySeconds"] < rounds_after(job, killed, first)[second][1], f"the others' wait is counted to the return of the killed rank: {record}")
