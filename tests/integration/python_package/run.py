"""Scripts that join their job by the Python package, started by `lockstep run`, whose ranks are killed and stopped.

LOCKSTEP_CHAOS_FAULTS=100 makes test_random_faults long; LOCKSTEP_CHAOS_SEED chooses other faults.
"""
import contextlib
import functools
import os
import pathlib
import random
import signal
import tempfile

import ledger
import torch_python
from cases import expect
from local_run import logged
from package_run import ENVIRONMENT, RANKS, ScriptRun, alone, expect_exactly_once, final, repeated, slowly, until_steps
from program_run import ProgramRun

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = HERE / "train.py"
SAMPLES, BATCH, STEPS_PER_EPOCH = 2017, 32, 64
SHORT, LONG = 2, 8  # epochs; LONG: some seconds, and two and a half minutes while FOLDER/slowly exists
SAVE_EVERY, AVERAGE_EVERY = 5, 10  # as train.py has them
HELD = 15  # seconds: longer than the least bound of a step, 10 s, and the 2 s for an answer
FAULTS, SEED = int(os.environ.get("LOCKSTEP_CHAOS_FAULTS", 4)), int(os.environ.get("LOCKSTEP_CHAOS_SEED", 1))


@functools.cache
def of_one_process(epochs):
    """What it comes to, started without Lockstep."""
    with tempfile.TemporaryDirectory(prefix="lockstep-alone-") as folder:
        return alone(folder, TRAIN, epochs)


class PackageRun(ScriptRun):
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


def test_three_ranks_train_as_one_process(folder):
    with PackageRun(folder, SHORT) as run:
        expect_complete(run, folder, SHORT)


def test_survivors_keep_process_and_state(folder):
    with PackageRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            for victim in (1, 0):  # 0: it serves the round's store, and the others take its state for the newest
                before = run.programs()
                os.kill(before[victim], signal.SIGKILL)
                number = until_steps(run, after=number)
                after = run.programs()
                expect(len(set(before) & set(after)) == RANKS - 1, f"other processes than the killed one were replaced: {before}, {after}")
        expect_complete(run, folder, LONG)
        sources = [record["state_from"] for record in logged(folder, "rank entered the round")]
        expect(sources.count("fresh") == RANKS and sources.count("peer") == 2, f"the ranks took their states from {sources}")
        expect(repeated(run.ledger) <= 2, f"{repeated(run.ledger)} finished steps were done again")


def test_a_rank_that_dies_while_ranks_connect_ends_no_other(folder):
    with ScriptRun(folder, HERE / "connects.py", LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            before = run.programs()
            pathlib.Path(folder, "dies-connecting").touch()
            os.kill(before[1], signal.SIGKILL)
            until_steps(run, after=number)
            expect(len(set(before) & set(run.programs())) == 1, f"of {before}, two have died, and there are {run.programs()}")
        expect_complete(run, folder, LONG)
        sources = [record["state_from"] for record in logged(folder, "rank entered the round")]
        expect(sources.count("fresh") == RANKS and sources.count("peer") == 2, f"the ranks took their states from {sources}")


@functools.cache
def quiet_windows():
    """The loss of three ranks that average after some steps, if nothing happens to them."""
    with tempfile.TemporaryDirectory(prefix="lockstep-windows-") as folder, PackageRun(folder, LONG, "windows") as run:
        expect_windows_complete(run, folder)
        return final(folder, 0)["loss"]


def expect_windows_complete(run, folder):
    """The job has ended, each sample counted once, and all ranks had the same weights after each average."""
    expect_exactly_once(run, SAMPLES, BATCH, LONG)
    ranks = [final(folder, rank) for rank in range(RANKS)]
    for found in ranks:
        expect(found["steps"] == LONG * STEPS_PER_EPOCH and found["weights"] == ranks[0]["weights"], f"{found['steps']} steps, or other weights")
    digests = {}
    for path in pathlib.Path(folder).glob("averages-*"):
        for number, step, digest in map(str.split, path.read_text().splitlines()):
            digests.setdefault((int(number), int(step)), []).append(digest)
    differ = [average for average, found in digests.items() if len(set(found)) > 1]
    expect(not differ, f"after the averages (round, step) {differ} ranks had different weights")
    ends = [step for step in range(1, LONG * STEPS_PER_EPOCH + 1) if step % AVERAGE_EVERY == 0 or step % STEPS_PER_EPOCH == 0]
    expect(sorted({step for _, step in digests}) == ends, "there was no average at the end of a window")
    expect(max(map(len, digests.values())) == RANKS, "not all ranks have averaged together")


def newest_contribution(folder):
    return max((r["step"] for r in ledger.read(folder) if r["event"] == "contribute"), default=-1)


def test_survivors_repeat_the_window_under_way(folder):
    with PackageRun(folder, LONG, "windows") as run:
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
    with PackageRun(folder, LONG, "windows") as run:
        with slowly(folder):
            number = until_steps(run)
            for _ in range(FAULTS):
                harm(run, dice)
                number = until_steps(run, more=dice.randint(1, AVERAGE_EVERY), after=number)
        expect_windows_complete(run, folder)


def test_a_new_worker_imports_before_it_joins(folder):
    """As a pod that replaces another one: the others train meanwhile."""
    with PackageRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            before = run.programs()
            os.kill(run.workers()[2], signal.SIGKILL)
            run.until("the others train alone", lambda: len(ledger.newest_round(run.ledger)[1]) == RANKS - 1)
            alone_from = ledger.newest_commit(run.ledger)
            until_steps(run, after=number)
            expect(len(set(before) & set(run.programs())) == RANKS - 1, "other processes than those of the killed worker were replaced")
            entered = [record for record in logged(folder, "rank entered the round") if record["state_from"] == "peer"]
            expect(entered and entered[0]["step"] > alone_from + 2, f"the others waited for the new worker: {entered}, alone from step {alone_from}")
        expect_complete(run, folder, LONG)


def test_all_ranks_lost_start_again(folder):
    with PackageRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            for pid in run.programs():
                os.kill(pid, signal.SIGKILL)
            until_steps(run, after=number)
        run.finish()
        expect_complete(run, folder, LONG, wanted=final(folder, 0))  # they began with the weights of another rank


def test_all_ranks_lost_continue_from_the_copy_in_memory(folder):
    """And the request of `lockstep run` for a checkpoint, and the end of the job, store one."""
    checkpoints, saves = pathlib.Path(folder, "checkpoints"), pathlib.Path(folder, "saves")
    saves.touch()
    with PackageRun(folder, LONG, "saves") as run:
        with slowly(folder):
            number = until_steps(run, more=SAVE_EVERY + 1)
            for pid in run.programs():
                os.kill(pid, signal.SIGKILL)
            until_steps(run, after=number)
            reached = ledger.newest_commit(run.ledger)
            first = min(r["step"] for r in ledger.read(run.ledger) if r["event"] == "commit" and r["round"] > number)
            expect(first % SAVE_EVERY == 0 and first > 0, f"they continued with step {first}")
            saves.unlink()
            until_steps(run, after=number)
            newest = stored(checkpoints)[-1]
            run.process.send_signal(signal.SIGUSR1)
            run.until("the checkpoint that was asked for", lambda: stored(checkpoints)[-1] > newest)
            run.process.send_signal(signal.SIGTERM)
            expect(run.finish() == 143, run.output()[-4000:])
        expect(stored(checkpoints)[-1] == ledger.newest_commit(run.ledger) + 1 > reached, f"stored: {stored(checkpoints)}")


def stored(checkpoints):
    return sorted(int(path.parent.name[5:]) for path in checkpoints.glob("step-*/.metadata"))


def test_an_unchanged_script_restarts_from_memory(folder):
    """FSDP2: each rank has its shard in the memory of its own `lockstep program`; in the folder nothing can be stored."""
    with ProgramRun(folder, torch_python.python(), HERE / "fsdp.py", folder, nproc=2, environment=ENVIRONMENT) as run:
        expect_continues(run, folder, lambda: os.kill(run.programs()[1], signal.SIGKILL))


def test_an_unchanged_script_restarts_from_the_copy_in_another_worker(folder):
    """As after the loss of a pod, with all memory of its ranks."""
    with ScriptRun(folder, HERE / "fsdp.py", ranks=2, minimum=2) as run:
        expect_continues(run, folder, lambda: os.kill(run.workers()[1], signal.SIGKILL))


def expect_continues(run, folder, harm):
    """fsdp.py, from one of its last checkpoints."""
    def steps(which=slice(None)):
        """Of the last round."""
        path = pathlib.Path(folder, "steps-0")
        lines = [line.split() for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []
        rounds = list(dict.fromkeys(number for number, _ in lines))[which]
        return [int(step) for number, step in lines if number in rounds]
    run.until("a checkpoint in memory", lambda: len(steps()) > 12)
    first = steps(slice(1))
    harm()
    run.until("steps of another round", lambda: len(steps(slice(1, None))) > 2)
    newest, continued = steps(slice(1))[-1], steps(slice(1, None))[0]
    expect(len(first) > 12 and newest - 11 <= continued - 1 <= newest and continued % 5 == 1, f"after step {newest} it continued with step {continued}")


def test_a_stopped_rank_is_ended_and_the_others_continue(folder):
    with PackageRun(folder, LONG) as run:
        with slowly(folder):
            number = until_steps(run)
            before = run.programs()
            os.kill(before[2], signal.SIGSTOP)
            until_steps(run, after=number)
            expect(set(before[:2]) <= set(run.programs()), "other processes than the stopped one were replaced")
        expect_complete(run, folder, LONG)


def test_a_rank_that_holds_the_lock_of_the_interpreter_is_no_hang(folder):
    with PackageRun(folder, LONG) as run:
        with slowly(folder):
            until_steps(run)
            before, holds = run.programs(), pathlib.Path(folder, "holds-1")
            holds.with_suffix(".new").write_text(str(HELD))
            holds.with_suffix(".new").rename(holds)
            run.until("it holds it", lambda: not holds.exists())
            held_at = ledger.newest_commit(run.ledger)
            run.until("it has let go", lambda: ledger.newest_commit(run.ledger) > held_at + 3)
            expect(run.programs() == before, "a process was replaced")
        expect(not logged(folder, "rank hangs"), f"{logged(folder, 'rank hangs')}")


def harm(run, dice):
    """Something that leaves at least one rank with the state."""
    run.until("all programs run", lambda: len(run.programs()) == RANKS)
    of_ranks = list(zip(run.workers(), run.programs()))
    for processes in dice.sample(of_ranks, dice.randint(1, RANKS - 1)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(dice.choice(processes), signal.SIGKILL)


def test_random_faults(folder):
    print(f"LOCKSTEP_CHAOS_SEED={SEED}")
    dice, epochs = random.Random(SEED), LONG * max(1, FAULTS // 4)
    with PackageRun(folder, epochs) as run:
        with slowly(folder):
            number = until_steps(run)
            for _ in range(FAULTS):
                harm(run, dice)
                number = until_steps(run, more=dice.randint(1, 5), after=number)
        expect_complete(run, folder, epochs)


def test_ends_in_good_order(folder):
    with PackageRun(folder, LONG) as run:
        with slowly(folder):
            until_steps(run)
            run.process.send_signal(signal.SIGTERM)
            code = run.finish()
        expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")
        expect(len(list(pathlib.Path(folder).glob("stopped-*"))) == RANKS, "not every script ended by lockstep.Stopped")
