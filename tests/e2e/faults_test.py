"""Faults against processes in real pods, while three ranks train: each case ends with every sample of every epoch used exactly once
and, under `determinism: World`, the weights of a quiet run bit for bit.

LOCKSTEP_LONG=1 adds the long ones.
"""
import os
import signal
import time

import pytest

import jobs
from cases import expect, until
from unharmed import manifest, unharmed

LONG = pytest.mark.skipif(os.environ.get("LOCKSTEP_LONG") != "1", reason="LOCKSTEP_LONG=1 runs it")
# Some 80 MB of parameters, as much of momentum: transfers last long enough to be hit.
LARGE = {"globalBatchSize": 32, "microBatchSize": 11, "model": {"name": "mlp", "mlp": {"hiddenSizes": [4096, 4096]}},
         "data": {"format": "synthetic", "synthetic": {"samples": 640, "testSamples": 200, "shape": [1, 28, 28], "classes": 10}}}


def newest_restart(job):
    """The record of the failure, once it is mended."""
    def mended():
        records = job.status().get("restarts", [])
        return records and "recoverySeconds" in records[0] and records[0]
    return job.until("the record of the restart", mended)


def test_survives_two_ranks_killed_at_once():
    with unharmed(manifest("two-killed")) as job:
        before, pods = job.newest_ranks()[0], job.uids()
        ranks = job.ranks()
        job.kill({pod: ranks[pod] for pod in sorted(ranks)[:2]})  # rank 0 is one of them
        job.until_ranks(3, after=before)
        expect(job.uids() == pods, "a pod was replaced for the sake of a process")


def test_survives_a_segmentation_fault():
    with unharmed(manifest("segfault")) as job:
        before, ranks = job.newest_ranks()[0], job.ranks()
        victim = sorted(ranks)[1]
        job.kill({victim: ranks[victim]}, "SEGV")
        job.until_ranks(3, after=before)
        record = newest_restart(job)
        expect("SIGSEGV" in record["message"], f"the record does not name the signal: {record}")


def test_ends_a_stopped_rank():
    bound = 5
    with unharmed(manifest("stopped", healthPolicy={"stepTimeoutSeconds": bound})) as job:
        before, ranks = job.newest_ranks()[0], job.ranks()
        victim = sorted(ranks)[2]
        job.kill({victim: ranks[victim]}, "STOP")
        stopped = time.time()
        job.until_ranks(3, after=before)
        print(f"     stopped rank -> survivors' next step: {job.pause_after(stopped + 1) + 1:.1f} s, bound {bound} s", flush=True)
        record = newest_restart(job)
        expect(record["cause"] == "Hang", f"the cause is not Hang: {record}")


def test_survives_a_killed_supervisor():
    with unharmed(manifest("supervisor")) as job:
        before, pods = job.newest_ranks()[0], job.uids()
        victim = sorted(pods)[1]
        os.kill(job.supervisor(victim), signal.SIGKILL)  # from outside: the kernel spares PID 1 from its own pod
        job.until_ranks(3, after=before)
        attempts = job.until("the attempt in the status", lambda: job.status().get("attempt"))
        expect(attempts == 1, f"a dead pod is charged once: {job.status()}")


def test_survives_a_failure_during_a_save():
    often = manifest("saving")
    often["spec"]["checkpoint"]["intervalSteps"] = 5  # one is always on its way
    with unharmed(often) as job:
        before = job.newest_ranks()[0]
        os.kill(job.rank_process(sorted(job.uids())[0]), signal.SIGKILL)
        job.until_ranks(3, after=before)


def test_survives_a_failure_during_an_evaluation():
    slow = {"evaluation": {"everyEpochs": 1, "batchSize": 1}}
    with unharmed(manifest("evaluating", training=slow), begin=jobs.STEPS_PER_EPOCH - 1) as job:
        before = job.newest_ranks()[0]
        os.kill(job.rank_process(sorted(job.uids())[1]), signal.SIGKILL)
        job.until_ranks(3, after=before)


def test_survives_a_failure_while_a_round_forms():
    with unharmed(manifest("forming")) as job:
        before, pods = job.newest_ranks()[0], sorted(job.uids())
        first, second = job.rank_process(pods[1]), job.rank_process(pods[0])
        os.kill(first, signal.SIGKILL)
        time.sleep(0.02)  # the fault: the others are on their way to the next round
        os.kill(second, signal.SIGKILL)
        job.until_ranks(3, after=before)


@LONG
def test_survives_a_failure_during_the_state_transfer():
    with unharmed(manifest("transfer", training=LARGE), begin=5) as job:
        pods = sorted(job.uids())
        source, before = job.rank_process(pods[0]), job.status()["rendezvous"]["round"]
        os.kill(job.rank_process(pods[1]), signal.SIGKILL)

        def returned():
            now = job.status()["rendezvous"]
            return now["round"] > before and now["worldSize"] == 3 and now["round"]
        with_it = until("the round in which it gets the state", returned, poll=0.01, details=job.describe)
        os.kill(source, signal.SIGKILL)
        was_hit = 0 not in {r["rank"] for r in job.commits() if r["round"] == with_it}
        print(f"     the source died {'before' if was_hit else 'after'} its first step of the round", flush=True)
        job.until_ranks(3, after=with_it)


def test_promotes_a_standby():
    with unharmed(manifest("standby", standbyReplicas=1)) as job:
        job.until("a standby", lambda: job.status().get("standbyReplicas") == 1)
        before, ranks, logs = job.newest_ranks()[0], job.ranks(), job.logs()
        expect(len(ranks) == 4 and all(ranks.values()), f"a standby has its ranks up: {ranks}")
        members = sorted(pod for pod, log in logs.items() if "rank entered the round" in log)  # the first three that came
        standby, = set(logs) - set(members)
        deleted = time.time()
        job.kubectl("delete", "pod", members[1], "--force", "--grace-period=0", "--wait=false")
        job.until_ranks(3, after=before)
        print(f"     deleted pod -> full strength by the standby: {job.full_after(deleted, 3):.2f} s", flush=True)
        after = job.ranks()
        expect(after.get(standby) == ranks[standby], f"the ranks of {standby} were {ranks[standby]}, are {after}")
