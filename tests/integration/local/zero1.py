"""`lockstep run` with the optimizer's state divided over the ranks: what becomes of it when ranks die, leave and come, and what is stored.

`determinism: World` makes one comparison of each case: whatever happened, weights and moments have the bits of a quiet run under ddp.
"""
import functools
import json
import os
import pathlib
import signal
import tempfile

import checkpoints
import ledger
from cases import expect
from divided_run import end_a_pod, kill_a_rank, logs, sources
from local_run import BATCH, LONGER, SAMPLES, Run, children, expect_complete, ledger_of, logged, slow_manifest, stop

LOST = "optimizer state lost with the ranks that held it"


def job(folder, copies=1, strategy="zero1", replicas=3, nproc=1):
    section = {"zero1": {"copies": copies}} if strategy == "zero1" else {}
    return slow_manifest(folder, replicas, milliseconds=3, sections={"nprocPerNode": nproc}, strategy=strategy, determinism="World", epochs=LONGER,
                    optimizer={"name": "adamw", "learningRate": 0.002, "weightDecay": 0.1, "clipNorm": 1}, **section)


def digest(folder):
    step, checkpoint = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    expect(step == LONGER * -(-SAMPLES // BATCH), f"the newest checkpoint is of step {step}")
    return checkpoints.digest_of_tensors(checkpoint)


@functools.cache
def quiet_digest():
    with tempfile.TemporaryDirectory(prefix="lockstep-quiet-") as folder:
        with Run(folder, job(folder, strategy="ddp", replicas=1)) as run:
            expect_complete(run, LONGER)
        return digest(folder)


def expect_the_bits_of_a_quiet_run(folder):
    expect(digest(folder) == quiet_digest(), "weights or moments differ from those of a quiet run under ddp")


def expect_peers_had_everything(folder):
    expect_nothing_lost(folder)
    expect(not sources(folder) & {"checkpoint", "fresh"}, f"states came from {sources(folder)}")
    expect_the_bits_of_a_quiet_run(folder)


def pods_by_rank(run):
    """{rank: (pid of its worker, pid of its process)} of the newest round."""
    ranks = [(worker, pid) for worker in run.workers() for pid, name in children(worker) if name == "lockstep-rank"]
    return {ledger.File(ledger_of(pid)).read()[-1]["rank"]: (worker, pid) for worker, pid in ranks}


def expect_nothing_lost(folder):
    lines = logs(folder).splitlines()
    around = [line[:300] for line in lines if any(word in line for word in (LOST, "round", "leaving", "worker ends", "rank process"))]
    expect(not any(LOST in line for line in lines), "optimizer state was lost:\n" + "\n".join(around[-60:]))


def test_gives_the_bits_of_ddp(folder):
    with Run(folder, job(folder)) as run:
        expect_complete(run, LONGER)
    expect_the_bits_of_a_quiet_run(folder)


def test_goes_back_to_the_checkpoint_when_a_rank_is_killed(folder):
    with Run(folder, job(folder)) as run:
        run.until("a checkpoint", lambda: checkpoints.newest(pathlib.Path(folder, "checkpoints")))
        kill_a_rank(run)
        expect_complete(run, LONGER)
    said = [json.loads(line) for line in logs(folder).splitlines() if LOST in line]
    # Each of the survivors says it, and of whom.
    expect(len(said) >= 2 and all(line["lost_with_ranks"] in ("0", "1", "2") for line in said), f"what was said: {said}")
    expect("checkpoint" in sources(folder), f"states came from {sources(folder)}")
    expect_the_bits_of_a_quiet_run(folder)


def test_goes_on_from_a_copy_when_a_rank_is_killed(folder):
    with Run(folder, job(folder, copies=2)) as run:
        kill_a_rank(run)
        expect_complete(run, LONGER)
    expect_peers_had_everything(folder)


def test_goes_on_from_copies_in_the_other_pods_when_a_pod_with_two_ranks_is_killed(folder):
    with Run(folder, job(folder, copies=2, replicas=2, nproc=2)) as run:
        end_a_pod(run, 0, signal.SIGKILL, ranks=4)
        expect_complete(run, LONGER)
    expect_peers_had_everything(folder)


def test_begins_again_without_a_checkpoint(folder):
    path = job(folder)
    content = json.loads(path.read_text())
    del content["spec"]["checkpoint"]
    path.write_text(json.dumps(content))
    with Run(folder, path) as run:
        kill_a_rank(run)
        expect_complete(run, LONGER)
    expect("no checkpoint to restore: training starts again at step 0" in logs(folder), "nothing is said of it")
    firsts = [r for r in ledger.read(run.ledger) if r["event"] == "commit" and r["step"] == 0]
    expect(len({r["round"] for r in firsts}) > 1, "the first step was not made again")


def test_loses_nothing_when_a_rank_leaves_in_good_order(folder):
    with Run(folder, job(folder)) as run:
        end_a_pod(run, 1, signal.SIGTERM, ranks=3)
        expect_complete(run, LONGER)
    expect_peers_had_everything(folder)


def test_hands_its_part_over_in_the_next_round_when_its_round_breaks_first(folder):
    # Rank 1 has the only copy of what rank 2 holds. It reads that it should stop when rank 2 is dead, and rank 0 joins no round before that.
    with Run(folder, job(folder, copies=2)) as run:
        run.until_joined(3)
        run.until_step(60)
        pods = pods_by_rank(run)
        expect(sorted(pods) == [0, 1, 2], f"ranks 0 to 2 expected: {pods}")
        (worker_of_0, _), (leaver, rank_1), (_, rank_2) = pods[0], pods[1], pods[2]
        os.kill(worker_of_0, signal.SIGSTOP)
        os.kill(rank_1, signal.SIGSTOP)
        os.kill(leaver, signal.SIGTERM)
        run.until("the request to leave", lambda: any(r["reason"] == "asked to stop" for r in logged(folder, "leaving the round")))
        os.kill(rank_2, signal.SIGKILL)
        os.kill(rank_1, signal.SIGCONT)
        os.kill(worker_of_0, signal.SIGCONT)
        run.until("the worker's return", lambda: leaver not in run.workers() and len(run.ranks()) == 3)
        expect_complete(run, LONGER)
    expect_peers_had_everything(folder)


def test_stops_on_sigterm_and_resumes(folder):
    with Run(folder, job(folder)) as run:
        run.until_step(40)
        stop(run, folder)
    with Run(folder, job(folder)) as run:
        expect_complete(run, LONGER)
    expect_the_bits_of_a_quiet_run(folder)
