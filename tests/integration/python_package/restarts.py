"""Scripts all of whose ranks are lost, or that do not join: they start again, from a checkpoint in memory."""
import os
import pathlib
import signal

import ledger
import torch_python
from cases import expect
from package_run import ENVIRONMENT, ScriptRun, slowly, until_steps
from program_run import ProgramRun, metric
from train_run import HERE, LONG, TrainRun

SAVE_EVERY = 5  # as train.py has it


def test_all_ranks_lost_continue_from_the_copy_in_memory(folder):
    """And the request of `lockstep run` for a checkpoint, and the end of the job, store one."""
    checkpoints, saves = pathlib.Path(folder, "checkpoints"), pathlib.Path(folder, "saves")
    saves.touch()
    with TrainRun(folder, LONG, "saves") as run:
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
        expect_shows_memory(run, folder)
        expect_continues(run, folder, lambda: os.kill(run.programs()[1], signal.SIGKILL))


def test_an_unchanged_script_restarts_from_the_copy_in_another_worker(folder):
    """As after the loss of a pod, with all memory of its ranks."""
    with ScriptRun(folder, HERE / "fsdp.py", ranks=2, minimum=2) as run:
        expect_continues(run, folder, lambda: os.kill(run.workers()[1], signal.SIGKILL))


def expect_shows_memory(run, folder):
    """Two checkpoints for each rank, and the process that imports PyTorch, not the `lockstep program` that starts it."""
    run.until("the memory of checkpoints is shown", lambda: (metric(folder, "lockstep_rank_checkpoint_memory_bytes") or 0) > 0)
    shown = metric(folder, "lockstep_rank_memory_bytes")
    expect(shown > 100e6, f"lockstep_rank_memory_bytes {shown}")


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
