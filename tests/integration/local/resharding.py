"""Checkpoints of one strategy and number of ranks, read by others: ddp, zero1 and pipeline of 1 to 4 ranks, fsdp of 3, hybrid of 3 (one idle) and 4.

A walk goes from one of them to the next. Each first reads what the one before stored and stores it again without a step: the same bits.
Then it trains on. At the end every sample was used exactly once, and weights, moments and the average of the weights are those of a run that nothing interrupted, but
for the rounding of sums in another order.

LOCKSTEP_LONG=1 adds all 196 pairs, among them each with itself: minutes.
"""
import json
import math
import os
import pathlib
import shutil

import pytest

import checkpoints
import ledger
from cases import expect
from local_run import BATCH, SAMPLES, Run, logged, manifest

# No two neighbours have the strategy or the number of ranks in common, the last and the first neither.
WRITERS = [("ddp", 1), ("zero1", 2), ("pipeline", 3), ("hybrid", 4), ("ddp", 3), ("pipeline", 1), ("zero1", 4),
           ("pipeline", 2), ("fsdp", 3), ("ddp", 4), ("hybrid", 3), ("zero1", 1), ("pipeline", 4), ("ddp", 2), ("zero1", 3)]
EPOCHS = 4
STEPS = EPOCHS * -(-SAMPLES // BATCH)
AVERAGE = "optimizer.average_minus_weight."
ROUNDING = 1e-3  # of the length of a tensor, after all steps


def train_until(steps, folder, strategy, world, hidden=(64, 32, 32)):
    """The checkpoint of that step, by that strategy and number of ranks."""
    section = {"pipeline": {"stages": 2}} if strategy == "hybrid" else {}
    path = manifest(folder, replicas=world, minimum=world, strategy=strategy, epochs=None, steps=steps, evaluation=None,
                    model={"name": "mlp", "mlp": {"hiddenSizes": hidden}},
                    optimizer={"name": "adamw", "learningRate": 0.002, "weightDecay": 0.1, "clipNorm": 1, "weightAverage": {"decay": 0.9}},
                    schedule={"name": "step", "decayEverySteps": 40, "decayFactor": 0.5},
                    sections={"checkpoint": {"uri": f"file://{folder}/checkpoints"}}, **section)
    with Run(folder, path) as run:
        expect(run.finish() == 0, f"{strategy} of {world} to step {steps}: exit code {run.process.returncode}\n{run.output()[-4000:]}")
    step, checkpoint = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    written = json.loads((checkpoint / "manifest.json").read_text())
    by = (step, written["training"]["strategy"], written["world"])
    expect(by == (steps, strategy, world), f"{strategy} of {world} was to store step {steps}; the newest is {by}")
    return checkpoint


def walk(folder, path):
    stored = train_until(STEPS // len(path), folder, *path[0])
    for number, (before, after) in enumerate(zip(path, path[1:]), start=2):
        reached, digest = checkpoints.newest(folder)[0], checkpoints.digest_of_tensors(stored)
        copied = train_until(reached, folder, *after)
        expect(checkpoints.digest_of_tensors(copied) == digest, f"step {reached} of {before}, read by {after}: other weights or moments")
        stored = train_until(STEPS * number // len(path), folder, *after)
    return stored


def numbers_of(checkpoint):
    """All tensors, with the averages of the weights themselves: what is stored of them is small, so rounding is a larger part of it."""
    tensors = checkpoints.floats(checkpoint)
    return {name: [a + b for a, b in zip(numbers, tensors[name.removeprefix(AVERAGE)])] if name.startswith(AVERAGE) else numbers
            for name, numbers in tensors.items()}


def expect_what_nothing_interrupted(folder, path):
    quiet, interrupted = pathlib.Path(folder, "quiet"), pathlib.Path(folder, "walk")
    quiet.mkdir()
    interrupted.mkdir()
    found = numbers_of(walk(interrupted, path))
    problems = ledger.check_exactly_once(interrupted / "ledger", SAMPLES, BATCH, EPOCHS)
    expect(not problems, "; ".join(problems))
    expected = numbers_of(train_until(STEPS, quiet, "ddp", 1))
    expect(found.keys() == expected.keys(), f"{sorted(found)} is stored, not {sorted(expected)}")
    worst = max(math.dist(found[name], numbers) / math.hypot(*numbers) for name, numbers in expected.items())
    print(f"     {len(path) - 1} pairs; relative distance from a quiet run: {worst:.2g}")
    expect(worst < ROUNDING, f"weights or moments differ from those of a quiet run by {worst}")


def test_each_reads_what_another_stored(folder):
    expect_what_nothing_interrupted(folder, [*WRITERS, WRITERS[0]])


def test_each_rank_reads_its_part(folder):
    """Of 28 MB: a share of what all hold, and the moments and layers that it is to have."""
    large = (900, 900, 900)
    first = pathlib.Path(folder, "first")
    first.mkdir()
    train_until(1, first, "ddp", 2, large)
    for strategy, world in [("ddp", 3), ("zero1", 3), ("pipeline", 3), ("hybrid", 4)]:
        own = pathlib.Path(folder, strategy)
        shutil.copytree(first / "checkpoints", own / "checkpoints")
        train_until(2, own, strategy, world, large)
        read = [line["bytes_read"] / line["of_bytes"] for line in logged(own, "restored a checkpoint")]
        print(f"     {strategy} of {world}: each rank read " + ", ".join(f"{share:.0%}" for share in read))
        expect(len(read) == world and max(read) < 0.5 and 0.99 < sum(read) < 1.4, f"{strategy}: the ranks read {read} of it")


@pytest.mark.skipif(os.environ.get("LOCKSTEP_LONG") != "1", reason="LOCKSTEP_LONG=1 runs it")
def test_every_pair(folder):
    path = []
    for number, first in enumerate(WRITERS):  # a walk over each edge once
        path.append(first)
        for second in WRITERS[number + 1:]:
            path += [first, second]
    path.append(WRITERS[0])
    expect(len(set(zip(path, path[1:]))) == len(path) - 1 == len(WRITERS) ** 2, "some pair is missing or there twice")
    expect_what_nothing_interrupted(folder, path)
