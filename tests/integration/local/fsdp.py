"""`lockstep run` with parameters and optimizer state divided over the ranks: what becomes of them when ranks die and leave, and what is stored."""
import pathlib
import signal

import checkpoints
from cases import expect
from divided_run import end_a_pod, kill_a_rank, logs, sources
from local_run import BATCH, LONGER, SAMPLES, Run, expect_complete, slow_manifest, stop

LOST = "layers and optimizer state lost with the ranks that held it"
STEPS = LONGER * -(-SAMPLES // BATCH)


def job(folder, replicas=3, nproc=1, precision="fp32", **fsdp):
    return slow_manifest(folder, replicas, sections={"nprocPerNode": nproc}, strategy="fsdp", fsdp=fsdp, epochs=LONGER, precision=precision,
                    optimizer={"name": "adamw", "learningRate": 0.002, "weightDecay": 0.1, "clipNorm": 1})


def expect_stored(folder):
    step, _ = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    expect(step == STEPS, f"the newest checkpoint is of step {step}")


def expect_peers_had_everything(folder):
    expect(LOST not in logs(folder), "a part of the state was lost")
    expect(not sources(folder) & {"checkpoint", "fresh"}, f"states came from {sources(folder)}")
    expect_stored(folder)


def test_goes_back_to_the_checkpoint_when_a_rank_is_killed(folder):
    with Run(folder, job(folder)) as run:
        run.until("a checkpoint", lambda: checkpoints.newest(pathlib.Path(folder, "checkpoints")))
        kill_a_rank(run)
        expect_complete(run, LONGER)
    expect(LOST in logs(folder), "nothing is said of what is lost")
    expect("checkpoint" in sources(folder), f"states came from {sources(folder)}")
    expect_stored(folder)


def test_goes_on_from_a_copy_when_a_rank_is_killed(folder):
    with Run(folder, job(folder, copies=2, precision="bf16")) as run:
        kill_a_rank(run)
        expect_complete(run, LONGER)
    expect_peers_had_everything(folder)


def test_goes_on_from_the_other_group_when_a_rank_is_killed(folder):
    with Run(folder, job(folder, shardingGroup=2, replicas=4)) as run:
        kill_a_rank(run, ranks=4)
        expect_complete(run, LONGER)
    expect_peers_had_everything(folder)


def test_goes_on_from_copies_in_the_other_pods_when_a_pod_with_two_ranks_is_killed(folder):
    with Run(folder, job(folder, copies=2, replicas=2, nproc=2)) as run:
        end_a_pod(run, 0, signal.SIGKILL, ranks=4)
        expect_complete(run, LONGER)
    expect_peers_had_everything(folder)


def test_loses_nothing_when_a_rank_leaves_in_good_order(folder):
    with Run(folder, job(folder)) as run:
        end_a_pod(run, 1, signal.SIGTERM, ranks=3)
        expect_complete(run, LONGER)
    expect_peers_had_everything(folder)


def test_stops_on_sigterm_and_resumes(folder):
    with Run(folder, job(folder)) as run:
        run.until_step(40)
        stop(run, folder)
    with Run(folder, job(folder)) as run:
        expect_complete(run, LONGER)
    expect_stored(folder)
