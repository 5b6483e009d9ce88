"""The Python package with FSDP2: pods of two ranks that share one state (hsdp.py), whose ranks are killed."""
import contextlib
import functools
import os
import pathlib
import signal
import tempfile
import time

import ledger
from cases import expect
from local_run import logged
from package_run import ScriptRun, alone, expect_exactly_once, final, run_parts, slowly, until_steps

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE / "hsdp.py"
SAMPLES, BATCH, SAVE_EVERY = 601, 30, 5  # as hsdp.py has them
PODS, RANKS = 2, 4
SHORT, LONG = 2, 10  # epochs; LONG: seconds, and many minutes while FOLDER/slowly exists; its last step saves


class ShardedRun(ScriptRun):
    """A short run wants both pods: one could train alone and be done before the other one has come."""

    def __init__(self, folder, epochs, *more, script=SCRIPT):
        super().__init__(folder, script, epochs, *more, ranks=PODS, minimum=PODS if epochs == SHORT else 1, nproc=2)

    def pods(self):
        """The programs of each one."""
        programs = self.programs()
        return [programs[begin:begin + 2] for begin in range(0, len(programs), 2)]


@functools.cache
def quiet(epochs):
    with tempfile.TemporaryDirectory(prefix="lockstep-alone-") as folder:
        return alone(folder, SCRIPT, epochs)


def expect_complete(run, folder, epochs):
    """The job has ended, each sample counted once, and all ranks hold what one process comes to."""
    expect_exactly_once(run, SAMPLES, BATCH, epochs)
    for rank in range(RANKS):
        expect_as_quiet(final(folder, rank), epochs)


def expect_as_quiet(found, epochs):
    wanted = quiet(epochs)
    expect((found["steps"], found["rate"]) == (wanted["steps"], wanted["rate"]), f"{found['steps']} steps, rate {found['rate']}")
    apart = max(abs(a - b) for a, b in zip(found["weights"], wanted["weights"], strict=True))
    expect(apart < 1e-5, f"weights differ by {apart} from those of one process")
    expect(abs(found["evaluated"] - wanted["evaluated"]) < 1e-5, f"evaluated {found['evaluated']}, one process {wanted['evaluated']}")


def test_parts(folder):
    run_parts(folder, HERE / "sharded_parts.py")


def test_two_pods_of_two_ranks_train_as_one_process(folder):
    with ShardedRun(folder, SHORT) as run:
        expect_complete(run, folder, SHORT)


def test_the_loss_of_a_rank_costs_its_pod_only(folder):
    with ShardedRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run, ranks=RANKS)
            for victim in ((1, 1), (0, 0)):  # (0, 0): it serves the store of the round, and its pod has the state that was there first
                number = expect_costs_its_pod_only(run, number, *victim)
        expect_complete(run, folder, LONG)
        sources = [record["state_from"] for record in logged(folder, "rank entered the round")]
        expect(sources.count("fresh") == RANKS and sources.count("peer") == 2 * 2, f"the ranks took their states from {sources}")


def expect_costs_its_pod_only(run, number, pod, rank):
    """Kills a rank. Returns the round in which all ranks train again."""
    before = run.pods()
    killed_at = time.time()
    os.kill(before[pod][rank], signal.SIGKILL)
    first, number = number, until_steps(run, after=number, ranks=RANKS)
    after = run.pods()
    kept = after[1 - pod]
    expect(kept == before[1 - pod], f"processes of the other pod were replaced: {before}, {after}")
    expect(not set(before[pod]) & set(after[pod]), f"a rank of the pod that lost one has kept its process: {before}, {after}")
    print(f"kill → next step of the other pod: {min(record['time'] for record in commits_of(run) if record['round'] > first) - killed_at:.3f} s")
    return number


def commits_of(run):
    return [record for record in ledger.read(run.ledger) if record["event"] == "commit"]


def test_a_rank_that_fails_while_its_pod_joins(folder):
    """Then it waits for a round, and the other one, which had joined, for it."""
    with ShardedRun(folder, SHORT, script=HERE / "hsdp_fails.py") as run:
        expect_complete(run, folder, SHORT)
    expect(pathlib.Path(folder, "has-failed").exists(), "no rank has failed")


def test_all_ranks_lost_continue_from_their_parts_in_memory(folder):
    """And one process reads what the ranks of a pod have stored."""
    with ShardedRun(folder, LONG, "saves") as run:
        with slowly(folder):
            number = until_steps(run, more=SAVE_EVERY + 1, ranks=RANKS)
            for pid in run.programs():
                with contextlib.suppress(ProcessLookupError):  # it has ended with another one of its pod
                    os.kill(pid, signal.SIGKILL)
            until_steps(run, after=number, ranks=RANKS)
            first = min(record["step"] for record in commits_of(run) if record["round"] > number)
            expect(first % SAVE_EVERY == 0 and first > 0, f"they continued with step {first}")
        expect_complete(run, folder, LONG)
    found = alone(folder, SCRIPT, LONG, "saves")
    expect(not found["made_steps"], "it did not continue with the last step")
    expect_as_quiet(found, LONG)
