"""What jobs survive: each case kills something of a running job and reads in the sample ledger that nothing was lost or doubled."""
import json
import time

import pytest

import jobs
from cases import LIMIT, expect


def elastic(name, **training):
    return jobs.manifest(name, replicas=3, elastic=(1, 4), epochs=jobs.LONG, model=jobs.SLOW, **training)


def expect_survivors(job, before, lost):
    after = job.ranks()
    for pod, pids in before.items():
        expect(pod == lost or after.get(pod) == pids, f"the ranks of {pod} were {pids}, are {after.get(pod)}")


def test_survives_a_killed_rank():
    with jobs.running(elastic("killed-rank"), with_ledger=True) as job:
        first_round = job.until_ranks(3)
        job.until_step(50)
        ranks, pods = job.ranks(), job.uids()
        victim = sorted(ranks)[1]
        job.kill({victim: ranks[victim]})
        killed = time.time()
        job.until("the rank is back", lambda: job.ranks().get(victim) not in (None, [], ranks[victim]))
        job.until_ranks(3, after=first_round)
        expect_survivors(job, ranks, victim)
        expect(job.uids() == pods, "a pod was replaced for the sake of a process")
        status = job.complete_this_epoch()
        job.expect_exactly_once()
        print(f"     killed rank -> survivors' next step: {job.pause_after(killed):.2f} s after kubectl returned", flush=True)
        expect(status["restarts"], "status.restarts names nothing")


@pytest.mark.parametrize("name, training", [("deleted-pod", {}), ("deleted-shard", {"strategy": "fsdp", "fsdp": {"copies": 2}})])
def test_survives_a_forcibly_deleted_pod(name, training):
    with jobs.running(elastic(name, **training), with_ledger=True) as job:
        whole = job.until_ranks(3)
        job.until_step(50)
        ranks, pods = job.ranks(), job.uids()
        victim = sorted(ranks)[2]
        job.kubectl("delete", "pod", victim, "--force", "--grace-period=0")
        deleted = time.time()
        job.until("another pod in its place", lambda: job.uids().get(victim) not in (None, pods[victim]))
        job.until("its rank", lambda: job.ranks().get(victim))
        job.until_ranks(3, after=whole)
        expect_survivors(job, ranks, victim)
        sources = {json.loads(line)["state_from"] for log in job.logs().values() for line in log.splitlines() if '"state_from"' in line}
        expect("checkpoint" not in sources, f"what the pod had was not in another one: states came from {sources}")
        job.complete_this_epoch()
        job.expect_exactly_once()
        print(f"     deleted pod -> survivors' next step: {job.pause_after(deleted):.2f} s after kubectl returned", flush=True)


def test_restarts_from_the_checkpoint_when_all_ranks_die():
    with jobs.running(elastic("all-killed"), with_ledger=True) as job:
        job.until_ranks(3)
        job.until("a checkpoint", lambda: job.status().get("checkpoint", {}).get("step", 0) > 0)
        before = jobs.ledger.newest_commit(job.ledger)
        job.kill(job.ranks())
        job.until_step(before + 100)
        logs = "".join(job.logs().values())
        expect('"state_from":"checkpoint"' in logs, f"no rank says that its state came from a checkpoint\n{logs[-3000:]}")
        job.complete_this_epoch()
        job.expect_exactly_once()


def test_passes_over_a_damaged_checkpoint_and_says_so():
    manifest = elastic("damaged")
    manifest["spec"]["healthPolicy"] = {"stepTimeoutSeconds": LIMIT}  # ranks that are stopped meanwhile do not hang
    with jobs.running(manifest, with_ledger=True) as job:
        job.until_ranks(3)
        job.until("two checkpoints", lambda: job.status().get("checkpoint", {}).get("step", 0) > 100)
        ranks = job.ranks()
        job.kill(ranks, "STOP")  # so that no newer one is stored meanwhile
        step, checkpoint = jobs.checkpoints.newest(job.checkpoint_folder())
        shard = max(checkpoint.glob("shard-*"))
        content = bytearray(shard.read_bytes())
        content[-1] ^= 1
        shard.write_bytes(content)
        job.kill(ranks)

        def reported():
            return [event["note"] for event in jobs.get("--namespace", job.space, "events.events.k8s.io")["items"]
                    if event["reason"] == "CheckpointDamaged" and event["regarding"]["uid"] == job.get()["metadata"]["uid"]]
        note, = job.until("an event reports it", reported)
        expect(f"step {step} " in note and shard.name in note, note)
        expect("damaged checkpoint skipped" in "".join(job.logs().values()), "the log of rank 0 does not tell of it")
        job.complete_this_epoch()
        expect(len(reported()) == 1, reported())
        job.expect_exactly_once()
