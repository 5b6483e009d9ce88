"""A `lockstep run` of train.py with three ranks, and what is done to it."""
import contextlib
import functools
import os
import pathlib
import signal
import tempfile

from cases import expect
from package_run import RANKS, ScriptRun, alone, expect_exactly_once, final

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = HERE / "train.py"
SAMPLES, BATCH, STEPS_PER_EPOCH = 2017, 32, 64  # as train.py has them
SHORT, LONG = 2, 4  # epochs; LONG: seconds, and many minutes while FOLDER/slowly exists
FAULTS, SEED = int(os.environ.get("LOCKSTEP_CHAOS_FAULTS", 4)), int(os.environ.get("LOCKSTEP_CHAOS_SEED", 1))
RANDOM_EPOCHS = LONG * max(1, FAULTS // 4)


@functools.cache
def of_one_process(epochs):
    """What it comes to, started without Lockstep."""
    with tempfile.TemporaryDirectory(prefix="lockstep-alone-") as folder:
        return alone(folder, TRAIN, epochs)


class TrainRun(ScriptRun):
    """Of train.py."""

    def __init__(self, folder, epochs, *more):
        super().__init__(folder, TRAIN, epochs, *more)


def expect_complete(run, folder, epochs, wanted=None):
    """The job has ended, each sample counted once, and all ranks hold what one process comes to, or what is wanted."""
    expect_exactly_once(run, SAMPLES, BATCH, epochs)
    wanted = wanted or of_one_process(epochs)
    for rank in range(RANKS):
        found = final(folder, rank)
        expect((found["steps"], found["rate"]) == (wanted["steps"], wanted["rate"]), f"rank {rank}: {found['steps']} steps, rate {found['rate']}")
        apart = max(abs(a - b) for a, b in zip(found["weights"], wanted["weights"]))
        expect(apart < 1e-3, f"rank {rank}: weights differ by {apart} from those of one process")


def harm(run, dice):
    """Something that leaves at least one rank with the state."""
    run.until("all programs run", lambda: len(run.programs()) == RANKS)
    of_ranks = list(zip(run.workers(), run.programs()))
    for processes in dice.sample(of_ranks, dice.randint(1, RANKS - 1)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(dice.choice(processes), signal.SIGKILL)
