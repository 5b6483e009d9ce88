"""Evaluations that ranks of the Python package divide between them, while ranks are lost and stopped.

LOCKSTEP_CHAOS_FAULTS=100 makes test_random_faults_in_evaluations long; LOCKSTEP_CHAOS_SEED chooses other faults.
"""
import contextlib
import json
import os
import pathlib
import random
import signal

import pytest

from cases import expect
from package_run import RANKS, ScriptRun, alone, expect_exactly_once, final, run_parts, slowly

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE / "evaluates.py"
SAMPLES, BATCH, STEPS_PER_EPOCH, EVALUATE_EVERY = 2017, 32, 64, 20  # as evaluates.py has them
EPOCHS = 3
FAULTS, SEED = int(os.environ.get("LOCKSTEP_CHAOS_FAULTS", 4)), int(os.environ.get("LOCKSTEP_CHAOS_SEED", 1))


def places(epochs=EPOCHS, every=EVALUATE_EVERY):
    return sorted([(epoch * STEPS_PER_EPOCH, False) for epoch in range(1, epochs + 1)]
                  + [(step, True) for step in range(every, epochs * STEPS_PER_EPOCH + 1, every)])


def lines(folder, pattern):
    """Of complete lines, by process."""
    return {path.name: [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()] for path in pathlib.Path(folder).glob(pattern)}


def measured(folder):
    """The samples that were measured, by round and place."""
    found = {}
    for number, step, in_loop, first, last in sum(lines(folder, "measured-*").values(), []):
        found.setdefault((number, step, in_loop), []).extend(range(first, last + 1))
    return found


def expect_complete(run, folder, epochs=EPOCHS, every=EVALUATE_EVERY):
    """The job has ended, all ranks had the same results, of each sample once, and the last one is that of the model."""
    expect_exactly_once(run, SAMPLES, BATCH, epochs)
    results = {}
    for step, in_loop, result in sum(lines(folder, "evaluations-*").values(), []):
        results.setdefault((step, in_loop), []).append(result)
    expect(set(places(epochs, every)) <= set(results), f"there was no evaluation at {sorted(set(places(epochs, every)) - set(results))}")
    differ = [place for place, found in results.items() if any(result != found[0] for result in found)]
    expect(not differ, f"at {differ} ranks have different results")
    for place, (result, *_) in results.items():
        of = (result["counted"], result["position"])
        expect(of == pytest.approx((1, (SAMPLES - 1) / 2)), f"at {place} not each sample has counted once: {of}")
    loss, known = results[epochs * STEPS_PER_EPOCH, False][0]["loss"], final(folder, 0)["loss"]
    expect(abs(loss - known) < 1e-5, f"evaluated {loss}, it is {known}")


def expect_once(folder):
    """Each sample was measured, and by one rank in the last round: ranks with the same shares as before continue there."""
    found = measured(folder)
    for place in places():
        rounds = {number: samples for (number, *at), samples in found.items() if tuple(at) == place}
        last = rounds[max(rounds)]
        expect(len(last) == len(set(last)), f"at step {place[0]} {len(last)} samples were measured, {len(set(last))} different ones")
        missing = set(range(SAMPLES)).difference(*rounds.values())
        expect(not missing, f"at step {place[0]} {len(missing)} samples were not measured")


def test_parts(folder):
    run_parts(folder, HERE / "evaluation_parts.py")


def test_each_sample_is_evaluated_by_one_rank(folder):
    with ScriptRun(folder, SCRIPT, EPOCHS) as run:
        expect_complete(run, folder)
    expect_once(folder)
    expect(len(lines(folder, "measured-*")) == RANKS, "not all ranks have evaluated")
    expect(": test accuracy 0." in run.output(), run.output()[-4000:])
    of_one = alone(folder, SCRIPT, EPOCHS)["loss"]
    expect(abs(final(folder, 0)["loss"] - of_one) < 1e-3, "the training was disturbed")


@pytest.mark.parametrize("victim", [0, 1])  # 0: the others find what it has in the store that it hosts
@pytest.mark.parametrize("in_loop", [True, False])
def test_survivors_evaluate_again(folder, victim, in_loop):
    with ScriptRun(folder, SCRIPT, EPOCHS) as run:
        run.until_joined(RANKS)
        with slowly(folder):
            run.until("an evaluation", lambda: any(found[2] == in_loop for found in sum(lines(folder, "measured-*").values(), [])[-RANKS:]))
            before = run.programs()
            os.kill(before[victim], signal.SIGKILL)
            run.until("the end of an evaluation", lambda: ended(folder))
            expect(len(set(before) & set(run.programs())) == RANKS - 1, "other processes than the killed one were replaced")
        expect_complete(run, folder)
    expect_once(folder)


def test_a_rank_joins_while_the_others_evaluate(folder):
    """And makes the next evaluation with them: there is one after each step."""
    epochs = 1
    with ScriptRun(folder, SCRIPT, epochs, 1) as run:
        number = run.until_joined(RANKS)
        with slowly(folder):
            os.kill(run.programs()[0], signal.SIGKILL)
            run.until_joined(RANKS, after=number)
        expect_complete(run, folder, epochs, every=1)


def ended(folder):
    """Evaluations that were begun in several rounds, and have a result."""
    rounds = {}
    for number, *place in measured(folder):
        rounds.setdefault(tuple(place), set()).add(number)
    finished = {(step, in_loop) for step, in_loop, _ in sum(lines(folder, "evaluations-*").values(), [])}
    return [place for place, found in rounds.items() if len(found) > 1 and place in finished]


def test_random_faults_in_evaluations(folder):
    print(f"LOCKSTEP_CHAOS_SEED={SEED}")
    dice, epochs = random.Random(SEED), EPOCHS * FAULTS
    with ScriptRun(folder, SCRIPT, epochs) as run:
        number = run.until_joined(RANKS)
        keeps_state = run.programs()[2]
        with slowly(folder):
            for _ in range(FAULTS):
                batches = len(sum(lines(folder, "measured-*").values(), []))
                run.until("batches of an evaluation", lambda: len(sum(lines(folder, "measured-*").values(), [])) > batches + dice.randint(1, 9))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(dice.choice([pid for pid in run.programs() if pid != keeps_state]), signal.SIGKILL)
                if dice.random() < 0.5:
                    number = run.until_joined(RANKS, after=number)
                else:
                    run.until("all programs run", lambda: len(run.programs()) == RANKS)
        expect_complete(run, folder, epochs)


def test_a_job_is_stopped_in_an_evaluation(folder):
    pathlib.Path(folder, "until-stopped").touch()
    with ScriptRun(folder, SCRIPT, EPOCHS, minimum=RANKS) as run:
        run.until("all ranks evaluate", lambda: len(sum(lines(folder, "measured-*").values(), [])) == RANKS)
        run.process.send_signal(signal.SIGTERM)
        code = run.finish()
    expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")
    expect(not lines(folder, "evaluations-*"), "the evaluation was finished first")
    expect(len(list(pathlib.Path(folder).glob("stopped-*"))) == RANKS, "not every script ended by lockstep.Stopped")
