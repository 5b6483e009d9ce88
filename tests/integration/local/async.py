#!/usr/bin/env python3
"""`strategy: async` with real processes: a rank that dies inside a window or stands still, a stop and the way back, and ranks that a slow one does not hold up.

async.py BIN_FOLDER [NAME…]    runs all cases, or those named; prints `N passed, N failed`
"""
import contextlib
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import checkpoints  # noqa: E402
import ledger  # noqa: E402
from cases import expect  # noqa: E402
from local_run import BATCH, EPOCHS, SAMPLES, Run, expect_complete, main, manifest, slowed, unfinished  # noqa: E402

WINDOW = 25
ASYNC = {"strategy": "async", "sync": {"staleness": WINDOW}, "evaluation": None}
# So that windows end where `staleness` says.
SAVES = lambda folder: {"checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": 2 * WINDOW}}


def rank_of(pid):
    """By the name of its ledger."""
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # others come and go
            name = os.readlink(link)
            if name.endswith(".jsonl"):
                return int(pathlib.Path(name).stem.rpartition("-")[2])
    return None


def takes_a_window_again_where_a_rank_died_in_it(folder):
    epochs = 5 * EPOCHS  # so many windows that a quick machine is looked at inside one
    with Run(folder, manifest(folder, sections=SAVES(folder), epochs=epochs, **ASYNC)) as run:
        run.until_step(2 * WINDOW)
        before = run.ranks()
        victim, found = before[1], []

        def is_inside():
            os.kill(victim, signal.SIGSTOP)
            found[:] = unfinished(victim)
            if 2 <= len(found) <= WINDOW // 2:  # a third of the window's batches are its own, on the whole
                return True
            os.kill(victim, signal.SIGCONT)
            return False

        run.until("a rank inside a window", is_inside)
        os.kill(victim, signal.SIGKILL)
        run.until("the rank's return", lambda: len(run.ranks()) == 3 and victim not in run.ranks())
        expect(set(run.ranks()) >= {before[0], before[2]}, "a survivor's process was replaced")
        expect_complete(run, epochs)
    records = ledger.read(run.ledger)
    killed_in = min(r["round"] for r in records if r["step"] == found[0] and r["event"] == "contribute")
    done_in = {r["round"] for r in records if r["step"] == found[0] and r["event"] == "commit"}
    expect(done_in and min(done_in) > killed_in, f"step {found[0]} was taken in round {killed_in} and counted in {done_in}")
    print(f"     killed after {len(found)} batches of the window from {found[0] // WINDOW * WINDOW} on")


def resumes_where_it_was_stopped(folder):
    path = manifest(folder, replicas=2, **ASYNC)
    with Run(folder, path) as run:
        run.until_step(2 * WINDOW)
        run.process.send_signal(signal.SIGTERM)
        expect(run.finish() == 143, f"exit code {run.process.returncode}")
        reached = ledger.newest_commit(run.ledger)
    step, _ = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    expect(step == reached + 1, f"step {reached} was the last one that counted, but the newest checkpoint is {step}")
    with Run(folder, path) as run:
        expect_complete(run)


def a_stopped_rank_0_takes_nobody_with_it(folder):
    """Its process has the number that the others add to, so all wait for it."""
    epochs = 3 * EPOCHS
    with Run(folder, manifest(folder, epochs=epochs, sections={"healthPolicy": {"stepTimeoutSeconds": 4}}, **ASYNC)) as run:
        run.until_step(2 * WINDOW)
        before = run.ranks()
        victim = next(pid for pid in before if rank_of(pid) == 0)
        os.kill(victim, signal.SIGSTOP)
        run.until("the end of the stopped rank", lambda: victim not in run.ranks())
        run.until("a new rank", lambda: len(run.ranks()) == 3)
        expect(set(run.ranks()) >= set(before) - {victim}, "a survivor's process was replaced")
        expect_complete(run, epochs)


# Much to compute for a sample, and windows that last long beside the mean, which a process takes that is stopped most of the time.
HEAVY = {"model": {"name": "cnn", "cnn": {"channels": [32, 32], "hiddenSize": 16}}, "evaluation": None}
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)


def rate_of_rank_0(folder, is_slowed, **training):
    """Its samples in a second, in windows of a whole epoch, while rank 1 is slowed or not."""
    os.makedirs(folder)
    epochs = 4
    sections = {"checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": STEPS_PER_EPOCH}}
    with Run(folder, manifest(folder, replicas=2, sections=sections, epochs=epochs, **HEAVY, **training)) as run:
        run.until("both ranks", lambda: len(run.ranks()) == 2)
        run.until_step(0)
        slow = next(pid for pid in run.ranks() if rank_of(pid) == 1)
        # The first two windows tell the ranks how fast each is.
        begin, end = 2 * STEPS_PER_EPOCH - 1, 3 * STEPS_PER_EPOCH - 1
        if is_slowed:
            with slowed(slow, 4):
                run.until_step(end)
        expect_complete(run, epochs)
        records = ledger.read(run.ledger)
    ended = {r["step"]: r["time"] for r in records if r["event"] == "commit" and r["rank"] == 0}
    samples = sum(len(r["ids"]) for r in records if r["event"] == "contribute" and r["rank"] == 0 and begin < r["step"] <= end)
    return samples / (ended[end] - ended[begin])


def a_slow_rank_does_not_hold_the_others(folder):
    staleness = {"strategy": "async", "sync": {"staleness": STEPS_PER_EPOCH}}
    ddp = rate_of_rank_0(f"{folder}/ddp", True)
    alike = rate_of_rank_0(f"{folder}/alike", False, **staleness)
    uneven = rate_of_rank_0(f"{folder}/uneven", True, **staleness)
    print(f"     rank 1 slowed 4 times: rank 0 keeps {uneven / alike:.2f} of its samples/s with async; {uneven / ddp:.2f} times those of ddp")
    expect(uneven >= 2 * ddp, f"rank 0 makes {uneven:.0f} samples/s with async and {ddp:.0f} with ddp")


CASES = [takes_a_window_again_where_a_rank_died_in_it, resumes_where_it_was_stopped, a_stopped_rank_0_takes_nobody_with_it,
         a_slow_rank_does_not_hold_the_others]


if __name__ == "__main__":
    sys.exit(main(CASES))
