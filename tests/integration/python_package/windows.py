"""Ranks that train alone for some steps and then average, some of which are killed in between.

LOCKSTEP_CHAOS_FAULTS=100 makes test_random_faults_in_windows long; LOCKSTEP_CHAOS_SEED chooses other faults.
"""
import functools
import os
import pathlib
import random
import signal
import tempfile

import ledger
from cases import expect
from local_run import logged
from package_run import RANKS, expect_exactly_once, final, slowly, until_steps
from train_run import BATCH, FAULTS, LONG, RANDOM_EPOCHS, SAMPLES, SEED, STEPS_PER_EPOCH, TrainRun, harm

AVERAGE_EVERY = 10  # as train.py has it


@functools.cache
def quiet_windows():
    """The loss of three ranks that average after some steps, if nothing happens to them."""
    with tempfile.TemporaryDirectory(prefix="lockstep-windows-") as folder, TrainRun(folder, LONG, "windows") as run:
        expect_windows_complete(run, folder)
        return final(folder, 0)["loss"]


def expect_windows_complete(run, folder, epochs=LONG):
    """The job has ended, each sample counted once, and all ranks had the same weights after each average."""
    expect_exactly_once(run, SAMPLES, BATCH, epochs)
    ranks = [final(folder, rank) for rank in range(RANKS)]
    for found in ranks:
        expect(found["steps"] == epochs * STEPS_PER_EPOCH and found["weights"] == ranks[0]["weights"], f"{found['steps']} steps, or other weights")
    digests = {}
    for path in pathlib.Path(folder).glob("averages-*"):
        for number, step, digest in map(str.split, path.read_text().splitlines()):
            digests.setdefault((int(number), int(step)), []).append(digest)
    differ = [average for average, found in digests.items() if len(set(found)) > 1]
    expect(not differ, f"after the averages (round, step) {differ} ranks had different weights")
    ends = [step for step in range(1, epochs * STEPS_PER_EPOCH + 1) if step % AVERAGE_EVERY == 0 or step % STEPS_PER_EPOCH == 0]
    expect(sorted({step for _, step in digests}) == ends, "there was no average at the end of a window")
    expect(max(map(len, digests.values())) == RANKS, "not all ranks have averaged together")


def newest_contribution(folder):
    return max((r["step"] for r in ledger.read(folder) if r["event"] == "contribute"), default=-1)


def test_survivors_repeat_the_window_under_way(folder):
    with TrainRun(folder, LONG, "windows") as run:
        with slowly(folder):
            number = until_steps(run)
            before = run.programs()
            run.until("steps of a window", lambda: newest_contribution(run.ledger) - ledger.newest_commit(run.ledger) > AVERAGE_EVERY // 2)
            os.kill(before[1], signal.SIGKILL)
            until_steps(run, after=number)
            expect(len(set(before) & set(run.programs())) == RANKS - 1, "other processes than the killed one were replaced")
        expect_windows_complete(run, folder)
        rounds = {}
        for record in ledger.read(run.ledger):
            if record["event"] == "contribute":
                rounds.setdefault(record["step"], set()).add(record["round"])
        repeated_windows = {(step // AVERAGE_EVERY, step // STEPS_PER_EPOCH) for step, found in rounds.items() if len(found) > 1}
        expect(len(repeated_windows) == 1, f"steps of the windows {repeated_windows} were repeated")
        sources = [record["state_from"] for record in logged(folder, "rank entered the round")]
        expect(sources.count("fresh") == RANKS and sources.count("peer") == 1, f"the ranks took their states from {sources}")
        loss = final(folder, 0)["loss"]
        expect(abs(loss - quiet_windows()) < 0.1, f"the loss is {loss}, without a failure {quiet_windows()}")


def test_random_faults_in_windows(folder):
    print(f"LOCKSTEP_CHAOS_SEED={SEED}")
    dice = random.Random(SEED)
    with TrainRun(folder, RANDOM_EPOCHS, "windows") as run:
        with slowly(folder):
            number = until_steps(run)
            for _ in range(FAULTS):
                harm(run, dice)
                number = until_steps(run, more=dice.randint(1, AVERAGE_EVERY), after=number)
        expect_windows_complete(run, folder, RANDOM_EPOCHS)
