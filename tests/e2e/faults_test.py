#!/usr/bin/env python3
"""Faults against processes in real pods, while three ranks train: each case ends with every sample of every epoch used exactly once
and, under `determinism: world`, the weights of a quiet run bit for bit.

faults_test.py [NAME…]    all cases, or those named
"""
import contextlib
import functools
import os
import signal
import time

import jobs  # first: it finds tests/support
from cases import expect, until

EPOCHS = 3
OPERATOR = ("--namespace", "lockstep-system")


def manifest(name, replicas=3, **sections):
    job = jobs.manifest(name, replicas=replicas, elastic=(1, 4), epochs=EPOCHS, determinism="world")
    job["spec"].update(sections)
    return job


@functools.cache
def quiet_bits():
    with jobs.running(manifest("quiet", replicas=1)) as job:
        job.until_complete(240)
        return job.final_bits()


@contextlib.contextmanager
def unharmed(name, **sections):
    """Runs a job that is in full swing while the caller does it harm, then judges."""
    with jobs.running(manifest(name, **sections), with_ledger=True) as job:
        job.until_ranks(3)
        job.until_step(200)
        yield job
        job.until_complete(300)
        job.expect_exactly_once(EPOCHS)
        expect(job.final_bits() == quiet_bits(), "the final weights differ from those of a quiet run")


def newest_restart(job):
    """The record of the failure, once it is mended."""
    def mended():
        records = job.status().get("restarts", [])
        return records and "recoverySeconds" in records[0] and records[0]
    return job.until("the record of the restart", mended)


def survives_two_ranks_killed_at_once():
    with unharmed("two-killed") as job:
        before, pods = job.newest_ranks()[0], job.uids()
        ranks = job.ranks()
        job.kill({pod: ranks[pod] for pod in sorted(ranks)[:2]})  # rank 0 is one of them
        job.until_ranks(3, after=before)
        expect(job.uids() == pods, "a pod was replaced for the sake of a process")


def survives_a_segmentation_fault():
    with unharmed("segfault") as job:
        before, ranks = job.newest_ranks()[0], job.ranks()
        victim = sorted(ranks)[1]
        job.kill({victim: ranks[victim]}, "SEGV")
        job.until_ranks(3, after=before)
        record = newest_restart(job)
        expect("SIGSEGV" in record["message"], f"the record does not name the signal: {record}")


def ends_a_stopped_rank():
    bound = 5
    with unharmed("stopped", healthPolicy={"stepTimeoutSeconds": bound}) as job:
        before, ranks = job.newest_ranks()[0], job.ranks()
        victim = sorted(ranks)[2]
        job.kill({victim: ranks[victim]}, "STOP")
        stopped = time.time()
        job.until_ranks(3, after=before)
        print(f"     stopped rank -> survivors' next step: {job.pause_after(stopped + 1) + 1:.1f} s, bound {bound} s", flush=True)
        record = newest_restart(job)
        expect(record["cause"] == "Hang", f"the cause is not Hang: {record}")


def survives_a_killed_supervisor():
    with unharmed("supervisor") as job:
        before, pods = job.newest_ranks()[0], job.uids()
        victim = sorted(pods)[1]
        os.kill(job.supervisor(victim), signal.SIGKILL)  # from outside: the kernel spares PID 1 from its own pod
        job.until_ranks(3, after=before)
        status = job.status()
        expect(status["attempt"] == 1, f"a dead pod is charged once: {status}")


def survives_a_failure_while_the_operator_is_away():
    with unharmed("operator-away") as job:
        before, ranks = job.newest_ranks()[0], job.ranks()
        jobs.kubectl(*OPERATOR, "scale", "deployment", "--all", "--replicas=0")
        try:
            until("the operator is gone", lambda: not jobs.get(*OPERATOR, "pods")["items"], 60)
            victim = sorted(ranks)[1]
            job.kill({victim: ranks[victim]})
        finally:
            jobs.kubectl(*OPERATOR, "scale", "deployment", "--all", "--replicas=1")
        job.until_ranks(3, after=before, limit=90)
        expect({pod: pids for pod, pids in job.ranks().items() if pod != victim} ==
               {pod: pids for pod, pids in ranks.items() if pod != victim}, "a survivor's process was replaced")


def promotes_a_standby():
    with unharmed("standby", standbyReplicas=1) as job:
        job.until("a standby", lambda: job.status().get("standbyReplicas") == 1)
        before, ranks, logs = job.newest_ranks()[0], job.ranks(), job.logs()
        expect(len(ranks) == 4 and all(ranks.values()), f"a standby has its ranks up: {ranks}")
        members = sorted(pod for pod, log in logs.items() if "rank entered the round" in log)  # the first three that came
        standby, = set(logs) - set(members)
        job.kubectl("delete", "pod", members[1], "--force", "--grace-period=0", "--wait=false")
        deleted = time.time()
        job.until_ranks(3, after=before)
        print(f"     deleted pod -> full strength by the standby: {job.full_after(deleted, 3):.2f} s", flush=True)
        after = job.ranks()
        expect(after.get(standby) == ranks[standby], f"the ranks of {standby} were {ranks[standby]}, are {after}")


CASES = [survives_two_ranks_killed_at_once, survives_a_segmentation_fault, ends_a_stopped_rank, survives_a_killed_supervisor,
         survives_a_failure_while_the_operator_is_away, promotes_a_standby]

if __name__ == "__main__":
    jobs.main(CASES)
