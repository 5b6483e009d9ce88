"""`training.determinism: World`: the final weights are the same, bit for bit, for any number of ranks and through failures."""
import os
import pathlib
import signal
import time

import checkpoints
import slow_mlp
from cases import expect
from local_run import BATCH, LONGER, SAMPLES, Run, expect_complete, manifest

# Dropout, moments, clipping, changed images; the last of an epoch's steps has one sample.
CNN = {"data": {"format": "synthetic", "synthetic": {"samples": SAMPLES, "testSamples": 200, "shape": [1, 28, 28], "classes": 10},
                "augmentation": {"horizontalFlip": True, "cropPadding": 2}},
       "model": {"name": "cnn", "cnn": {"channels": [4], "hiddenSize": 16, "dropout": 0.3}},
       "optimizer": {"name": "adamw", "learningRate": 0.002, "clipNorm": 1}}
LAST_STEP = LONGER * -(-SAMPLES // BATCH)


def final_digest(folder, name, replicas, harm=lambda run: None, **training):
    """The SHA-256 of weights and optimizer state after a whole run."""
    place = pathlib.Path(folder) / name
    place.mkdir()
    start = time.monotonic()
    training = {"determinism": "World", "model": slow_mlp.model(place, milliseconds=3), **training}
    with Run(place, manifest(place, replicas=replicas, epochs=LONGER, **training)) as run:
        harm(run)
        expect_complete(run, LONGER)
    step, checkpoint = checkpoints.newest(place / "checkpoints")
    expect(step == LAST_STEP, f"{name}: the newest checkpoint is of step {step}, not {LAST_STEP}")
    digest = checkpoints.digest_of_tensors(checkpoint)
    print(f"     {name:>22} {digest[:16]} ({time.monotonic() - start:.1f} s)", flush=True)
    return digest


def kill_a_rank(run):
    run.until_step(70)
    victim = run.ranks()[1]
    os.kill(victim, signal.SIGKILL)
    run.until("the rank's return", lambda: len(run.ranks()) == 3 and victim not in run.ranks())


def kill_rank_by_rank(run):
    for step, victim in ((40, 0), (100, 2), (160, 1)):
        run.until_step(step)
        run.until("a whole world", lambda: len(run.ranks()) == 3)
        os.kill(run.ranks()[victim], signal.SIGKILL)


def kill_all_ranks(run):
    run.until("a checkpoint", lambda: checkpoints.newest(pathlib.Path(run.ledger).parent / "checkpoints"))
    for pid in run.ranks():
        os.kill(pid, signal.SIGKILL)


def expect_equal(digests):
    expect(len(set(digests.values())) == 1, f"weights differ: { {name: d[:16] for name, d in digests.items()} }")


def test_any_world_and_a_killed_rank(folder):
    digests = {f"{n} ranks": final_digest(folder, f"{n} ranks", n, **CNN) for n in (1, 2, 3, 4)}
    digests["a rank killed"] = final_digest(folder, "a rank killed", 3, kill_a_rank, **CNN)
    expect_equal(digests)


def test_repeated_kills_and_a_checkpoint(folder):
    mlp = {"microBatchSize": 5}
    expect_equal({
        "quiet": final_digest(folder, "quiet", 1, **mlp),
        "three kills": final_digest(folder, "three kills", 3, kill_rank_by_rank, **mlp),
        "all killed": final_digest(folder, "all killed", 3, kill_all_ranks, **mlp)})


def test_the_usual_sum_depends_on_the_world(folder):
    """What the cases above would not notice if this did not hold."""
    usual = {"determinism": "None"}
    expect(final_digest(folder, "1 rank", 1, **usual) != final_digest(folder, "3 ranks", 3, **usual),
           "1 and 3 ranks give the same bits without determinism, too")
