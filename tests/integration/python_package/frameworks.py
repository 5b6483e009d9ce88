"""Hugging Face's Trainer and Lightning as ranks of an elastic job: scripts with two lines more, whose ranks are killed."""
import os
import pathlib
import signal
import tempfile

import pytest

import ledger
import package_run
import torch_python
from cases import expect
from local_run import logged
from package_run import RANKS, ScriptRun, alone, away, expect_exactly_once, final, repeated, run_parts, slowly, until_steps

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENT = {**package_run.ENVIRONMENT, "PYTHONPATH": f"{package_run.ENVIRONMENT['PYTHONPATH']}:{torch_python.frameworks()}", "HF_HUB_OFFLINE": "1"}
SAMPLES, BATCH, STEPS_PER_EPOCH, EPOCHS = 401, 16, 26, 8  # as the scripts have them
SAVE_EVERY = 20


def test_parts(folder):
    run_parts(folder, HERE / "framework_parts.py", environment=ENVIRONMENT)


@pytest.mark.parametrize("script", ["with_trainer.py", "with_lightning.py"])
def test_survivors_keep_process_and_state(folder, script):
    with ScriptRun(folder, HERE / script, EPOCHS, environment=ENVIRONMENT) as run:
        with slowly(folder):
            number = until_steps(run, more=STEPS_PER_EPOCH + 1)  # so that the new rank begins in another epoch
            before = run.programs()
            os.kill(before[0], signal.SIGKILL)  # the one that logs and saves
            number = until_steps(run, after=number)
            expect(set(before[1:]) <= set(run.programs()), f"other processes than the killed one were replaced: {before}, {run.programs()}")
            entered = [record["step"] for record in logged(folder, "rank entered the round") if record["state_from"] == "peer"]
            expect(len(entered) == 1 and entered[0] > STEPS_PER_EPOCH, f"ranks that took their state from another one: {entered}")
            expect(repeated(run.ledger) <= 1, f"{repeated(run.ledger)} finished steps were done again")
            run.until("a checkpoint is not being written", lambda: ledger.newest_commit(run.ledger) % SAVE_EVERY == SAVE_EVERY // 2)
            reached = ledger.newest_commit(run.ledger)
            for pid in run.programs():
                os.kill(pid, signal.SIGKILL)
            until_steps(run, after=number)
            first = min(r["step"] for r in ledger.read(run.ledger) if r["event"] == "commit" and r["round"] > number)
            expect(first == reached // SAVE_EVERY * SAVE_EVERY, f"after step {reached} they continued with step {first}")
        expect_exactly_once(run, SAMPLES, BATCH, EPOCHS)
    wanted = expect_same_as_one_process(folder, HERE / script, EPOCHS)
    if "evaluated" in wanted:
        expect_shared_evaluations([final(folder, rank)["evaluated"] for rank in range(RANKS)], wanted["evaluated"])


def test_a_rank_that_joins_or_was_away_does_what_the_others_have_done(folder):
    """They evaluate after each step, so all ranks join in an evaluation. It changes the learning rate."""
    epochs, evaluate_every = 3, 1
    with ScriptRun(folder, HERE / "with_trainer.py", epochs, evaluate_every, environment=ENVIRONMENT) as run:
        with slowly(folder):
            number = until_steps(run)
            os.kill(run.programs()[0], signal.SIGKILL)
            number = until_steps(run, after=number)
            before = run.programs()
            with away(run, run.workers()[1]):
                number = until_steps(run, after=number, ranks=RANKS - 1)
            until_steps(run, after=number)
            expect(set(before) == set(run.programs()), f"processes were replaced: {before}, {run.programs()}")
        expect_exactly_once(run, SAMPLES, BATCH, epochs)
    expect_same_as_one_process(folder, HERE / "with_trainer.py", epochs, evaluate_every)


def expect_same_as_one_process(folder, script, *arguments):
    with tempfile.TemporaryDirectory(prefix="lockstep-alone-") as quiet:
        wanted = alone(quiet, script, *arguments, environment=ENVIRONMENT)
    for rank in range(RANKS):
        found = final(folder, rank)
        for name in wanted.keys() - {"pid", "world", "weights", "evaluated"}:
            expect(found[name] == wanted[name], f"rank {rank}: {name} is {found[name]}, of one process {wanted[name]}")
        apart = max(abs(a - b) for a, b in zip(found["weights"], wanted["weights"]))
        expect(apart < 1e-3, f"rank {rank}: weights differ by {apart} from those of one process")
    return wanted


def expect_shared_evaluations(found, of_one):
    """Each rank has measured its share, and all know the losses of all samples."""
    for each in found:
        expect(each["samples"] <= of_one["samples"] / 2, f"a rank of {RANKS} has evaluated {each['samples']} samples, one process {of_one['samples']}")
        expect(each["losses"] == found[0]["losses"], f"the ranks know different losses: {each['losses']}, {found[0]['losses']}")
        expect(each["losses"] == pytest.approx(of_one["losses"], rel=0.05), f"the losses are {each['losses']}, of one process {of_one['losses']}")
