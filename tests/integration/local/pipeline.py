"""`lockstep run` with the layers of the model divided over the ranks: what it learns, what becomes of it when ranks die, leave and
come, and what is stored.

Each case ends with the weights and moments of a quiet run under ddp, but for rounding: sums of the same gradients in another order.
"""
import functools
import json
import math
import os
import pathlib
import random
import re
import signal
import tempfile
import time

import checkpoints
import ledger
from cases import expect
from local_run import BATCH, EPOCHS, LONGER, SAMPLES, Run, expect_complete, slow_manifest, stop

STEPS_PER_EPOCH = -(-SAMPLES // BATCH)
LOST = "layers lost with the ranks that held them"
ROUNDING = 1e-3  # of the length of a tensor, after all steps


def job(folder, strategy="pipeline", replicas=2, **sections):
    # Micro-batches of a quarter of the batch: of the usual sixteenth, messages between processes on few processors take nearly all of the time.
    return slow_manifest(folder, replicas, milliseconds=3, hidden=(64, 32, 32), strategy=strategy, microBatchSize=BATCH // 4,
                    optimizer={"name": "sgd", "learningRate": 0.05, "momentum": 0.9, "clipNorm": 1}, **sections)


def stored(folder, epochs=EPOCHS):
    step, checkpoint = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    expect(step == epochs * STEPS_PER_EPOCH, f"the newest checkpoint is of step {step}")
    return checkpoints.floats(checkpoint)


def evaluated(run):
    """Accuracy and loss on the test set, at the end."""
    return [float(number) for number in re.findall(r"test accuracy (\S+), loss (\S+)", run.output())[-1]]


@functools.cache
def quiet(epochs=EPOCHS):
    """What ddp stores, and how it is evaluated."""
    with tempfile.TemporaryDirectory(prefix="lockstep-quiet-") as folder:
        with Run(folder, job(folder, strategy="ddp", replicas=1, epochs=epochs)) as run:
            expect_complete(run, epochs)
        return stored(folder, epochs), evaluated(run)


def expect_what_ddp_learns(folder, epochs=EPOCHS):
    found, expected = stored(folder, epochs), quiet(epochs)[0]
    expect(found.keys() == expected.keys(), f"{sorted(found)} is stored, not {sorted(expected)}")
    worst = max(math.dist(found[name], numbers) / math.hypot(*numbers) for name, numbers in expected.items())
    print(f"  relative distance from ddp: {worst:.2g}")
    expect(worst < ROUNDING, f"weights or moments differ from those of ddp by {worst}")


def expect_what_ddp_measures(run):
    (accuracy, loss), (ddp_accuracy, ddp_loss) = evaluated(run), quiet()[1]
    expect(abs(accuracy - ddp_accuracy) <= 0.01 and abs(loss - ddp_loss) <= 0.01 * ddp_loss,
           f"accuracy {accuracy} and loss {loss}, not {ddp_accuracy} and {ddp_loss}")


def logs(folder, part):
    lines = "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.log")).splitlines()
    return [json.loads(line) for line in lines if part in line]


def sources(folder):
    """Where ranks say that their state came from, after the first round."""
    return {line["state_from"] for line in logs(folder, "rank entered the round") if line["round"] > 1}


def kill_one(run, count):
    before = run.ranks()
    expect(len(before) == count, f"{count} rank processes expected, {len(before)} found")
    os.kill(before[1], signal.SIGKILL)
    run.until("the rank's return", lambda: len(run.ranks()) == count and before[1] not in run.ranks())
    expect(set(run.ranks()) >= set(before) - {before[1]}, "a survivor's process was replaced")


def test_a_pipeline_learns_what_ddp_does(folder):
    with Run(folder, job(folder)) as run:
        expect_complete(run)
    expect_what_ddp_measures(run)
    placed = {(line["stage"], line["of_stages"], line["layers"]) for line in logs(folder, "stage placed")}
    expect({stage for stage, of, _ in placed if of == 2} == {0, 1}, f"stages: {placed}")
    expect_what_ddp_learns(folder)


def test_hybrid_learns_what_ddp_does(folder):
    with Run(folder, job(folder, strategy="hybrid", replicas=4)) as run:
        expect_complete(run)
    expect_what_ddp_measures(run)
    placed = {(line["pipeline"], line["stage"]) for line in logs(folder, "stage placed") if line["of_pipelines"] == 2}
    expect(placed == {(0, 0), (0, 1), (1, 0), (1, 1)}, f"places: {placed}")
    expect_what_ddp_learns(folder)


def test_a_pipeline_goes_back_to_the_checkpoint_when_a_rank_is_killed(folder):
    with Run(folder, job(folder, replicas=3)) as run:
        run.until("a checkpoint", lambda: checkpoints.newest(pathlib.Path(folder, "checkpoints")))
        run.until_step(60)
        kill_one(run, 3)
        expect_complete(run)
    expect(logs(folder, LOST), "nothing is said of it")
    expect("checkpoint" in sources(folder), f"states came from {sources(folder)}")
    expect_what_ddp_learns(folder)


def test_a_pipeline_goes_back_to_copies_in_memory_when_a_rank_is_killed(folder):
    with Run(folder, job(folder, replicas=3, pipeline={"copyEverySteps": 10})) as run:
        run.until_step(60)
        kill_one(run, 3)
        expect_complete(run)
    expect(logs(folder, LOST), "nothing is said of it")
    expect("copy" in sources(folder) and not sources(folder) & {"checkpoint", "fresh"}, f"states came from {sources(folder)}")
    expect_what_ddp_learns(folder)


def test_hybrid_goes_on_from_the_twin_of_a_killed_rank(folder):
    with Run(folder, job(folder, strategy="hybrid", replicas=4)) as run:
        run.until_step(60)
        kill_one(run, 4)
        expect_complete(run)
    expect(not logs(folder, LOST), "layers were lost")
    expect(not sources(folder) & {"checkpoint", "fresh"}, f"states came from {sources(folder)}")
    expect_what_ddp_learns(folder)


def test_survives_ranks_killed_at_random(folder):
    """Seeded: whom, how many at once and after which pause is the same in each run, what it hits is not."""
    dice = random.Random(1)
    last = LONGER * STEPS_PER_EPOCH // 2
    for strategy, replicas in [("pipeline", 3), ("hybrid", 4)]:
        place, rounds = f"{folder}/{strategy}", 0
        os.makedirs(place)
        with Run(place, job(place, strategy=strategy, replicas=replicas, epochs=LONGER, sections={"failurePolicy": {"maxRestarts": 1000}})) as run:
            run.until("a checkpoint", lambda: checkpoints.newest(pathlib.Path(place, "checkpoints")))
            while rounds < 10 and run.process.poll() is None and ledger.newest_commit(run.ledger) < last:
                victims = dice.sample(run.ranks(), dice.choice([1, 1, 2]))
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
                rounds += 1
                run.until("all ranks are back", lambda: len(run.ranks()) == replicas and not set(victims) & set(run.ranks()))
                time.sleep(dice.uniform(0, 1))  # part of the schedule
            expect_complete(run, LONGER)
        expect(rounds, "nobody was killed")
        print(f"     {strategy}: ranks were killed {rounds} times")
        expect_what_ddp_learns(place, LONGER)


def test_loses_nothing_when_a_rank_leaves_in_good_order(folder):
    with Run(folder, job(folder, replicas=3)) as run:
        run.until_step(60)
        victim = run.workers()[1]
        os.kill(victim, signal.SIGTERM)
        run.until("the worker's return", lambda: victim not in run.workers() and len(run.ranks()) == 3)
        expect_complete(run)
    expect(not logs(folder, LOST), "layers were lost")
    expect(not sources(folder) & {"checkpoint", "fresh"}, f"states came from {sources(folder)}")
    expect_what_ddp_learns(folder)


def test_stops_on_sigterm_and_resumes(folder):
    for strategy, replicas, step in [("pipeline", 3, 40), ("hybrid", 4, 90)]:
        with Run(folder, job(folder, strategy=strategy, replicas=replicas)) as run:
            run.until_step(step)
            stop(run, folder)
    with Run(folder, job(folder)) as run:
        expect_complete(run)
    expect_what_ddp_learns(folder)
