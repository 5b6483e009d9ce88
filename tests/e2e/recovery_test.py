#!/usr/bin/env python3
"""What jobs survive: each case kills something of a running job and reads in the sample ledger that nothing was lost or doubled.

recovery_test.py [NAME…]    all cases, or those named
"""
import os
import sys
import time

import jobs  # first: it finds tests/support
from cases import expect, main, until

EPOCHS = 6


def elastic(name):
    return jobs.manifest(name, replicas=3, elastic=(1, 4), epochs=EPOCHS)


def until_three_train(job):
    """All three pods are in the round and have made steps in it."""
    def all_in():
        newest = max((r["round"] for r in jobs.ledger.read(job.ledger)), default=0)
        ranks = {r["rank"] for r in jobs.ledger.read(job.ledger) if r["round"] == newest and r["event"] == "commit"}
        return newest if ranks == {0, 1, 2} else None
    return job.until("three ranks train", all_in)


def uids(job):
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in job.pods()}


def expect_survivors(job, before, lost):
    after = job.ranks()
    for pod, pids in before.items():
        expect(pod == lost or after.get(pod) == pids, f"the ranks of {pod} were {pids}, are {after.get(pod)}")


def survives_a_killed_rank():
    with jobs.running(space, elastic("killed-rank"), with_ledger=True) as job:
        first_round = until_three_train(job)
        job.until_step(300)
        ranks, pods = job.ranks(), uids(job)
        victim = sorted(ranks)[1]
        job.kill({victim: ranks[victim]})
        killed = time.time()
        job.until("the rank is back", lambda: job.ranks().get(victim) not in (None, [], ranks[victim]))
        expect(until_three_train(job) > first_round, "no new round was formed")
        expect_survivors(job, ranks, victim)
        expect(uids(job) == pods, "a pod was replaced for the sake of a process")
        status = job.until_complete(180)
        job.expect_exactly_once(EPOCHS)
        print(f"     killed rank -> survivors' next step: {job.pause_after(killed):.2f} s after kubectl returned", flush=True)
        expect(status["restarts"], "status.restarts names nothing")


def survives_a_forcibly_deleted_pod():
    with jobs.running(space, elastic("deleted-pod"), with_ledger=True) as job:
        until_three_train(job)
        job.until_step(300)
        ranks, pods = job.ranks(), uids(job)
        victim = sorted(ranks)[2]
        job.kubectl("delete", "pod", victim, "--force", "--grace-period=0")
        deleted = time.time()
        job.until("another pod in its place", lambda: uids(job).get(victim) not in (None, pods[victim]))
        job.until("its rank", lambda: job.ranks().get(victim))
        until_three_train(job)
        expect_survivors(job, ranks, victim)
        job.until_complete(180)
        job.expect_exactly_once(EPOCHS)
        print(f"     deleted pod -> survivors' next step: {job.pause_after(deleted):.2f} s after kubectl returned", flush=True)


def restarts_from_the_checkpoint_when_all_ranks_die():
    with jobs.running(space, elastic("all-killed"), with_ledger=True) as job:
        until_three_train(job)
        job.until_step(300)
        job.until("a checkpoint", lambda: job.status().get("checkpoint", {}).get("step", 0) > 0)
        before = jobs.ledger.newest_commit(job.ledger)
        job.kill(job.ranks())
        job.until_step(before + 100)
        logs = "".join(job.logs().values())
        expect('"state_from":"checkpoint"' in logs, f"no rank says that its state came from a checkpoint\n{logs[-3000:]}")
        job.until_complete(180)
        job.expect_exactly_once(EPOCHS)


def trains_on_while_the_operator_restarts():
    with jobs.running(space, elastic("operator-restart"), with_ledger=True) as job:
        first_round = until_three_train(job)
        pods = uids(job)
        operator = ("--namespace", "lockstep-system")
        before = {p["metadata"]["uid"] for p in jobs.get(*operator, "pods")["items"]}
        jobs.kubectl(*operator, "delete", "pods", "--selector=app.kubernetes.io/name=lockstep", "--force", "--grace-period=0")
        reached = jobs.ledger.newest_commit(job.ledger)
        until("a new operator", lambda: any(
            p["metadata"]["uid"] not in before and all(c["ready"] for c in p["status"].get("containerStatuses", [{"ready": False}]))
            for p in jobs.get(*operator, "pods")["items"]), 60)
        job.until_step(reached + 100)
        expect(uids(job) == pods, "pods were replaced")
        expect(until_three_train(job) == first_round, "the round was broken")
        job.until_complete(180)
        job.expect_exactly_once(EPOCHS)


CASES = [survives_a_killed_rank, survives_a_forcibly_deleted_pod, restarts_from_the_checkpoint_when_all_ranks_die,
         trains_on_while_the_operator_restarts]

if __name__ == "__main__":
    if "LOCKSTEP_CLUSTER" not in os.environ:
        print("SKIPPED: no cluster, LOCKSTEP_CLUSTER is not set")
        sys.exit(77)
    space = jobs.namespace()
    sys.exit(main(CASES, sys.argv[1:]))
