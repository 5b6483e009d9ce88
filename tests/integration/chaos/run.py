"""Faults against `lockstep run`, one by one at their worst moments, then at random: whatever fails, the job completes, each sample
of each epoch is used exactly once, the final weights have the bits of a quiet run of one rank (`determinism: World`), and no
process is left. Strategies that divide the state come to the weights of a quiet run of one rank but for rounding.

LOCKSTEP_CHAOS_EPOCHS=2000 makes test_random_faults long; LOCKSTEP_CHAOS_SEED chooses other faults.
"""
import contextlib
import functools
import math
import os
import pathlib
import random
import re
import signal
import tempfile
import time

import pytest

import checkpoints
import ledger
import processes
import slow_mlp
from cases import LIMIT, expect
from local_run import BATCH, SAMPLES, Run, complete_this_epoch, expect_complete, manifest

STEPS_PER_EPOCH = -(-SAMPLES // BATCH)
# Some 25 MB of parameters, as much of momentum: transfers and saves last long enough to be hit.
LARGE = {"model": {"name": "mlp", "mlp": {"hiddenSizes": [2048, 2048]}}, "microBatchSize": 11}
QUICK_TO_NOTICE = {"heartbeatIntervalSeconds": 1, "heartbeatTimeoutSeconds": 3}
EPOCHS = 3  # five seconds while steps wait
LONG = 10_000  # epochs: it is stopped before
# Milliseconds: of the 16 micro-batches of a step, each of three ranks has five or six, so a step of the small model takes some 20.
PAUSE = 4
# A job in which many things fail must not run out of its budget.
PATIENT = {"maxRestarts": 1000}
FAULTS = ["rank", "rank zero", "two ranks", "worker", "all ranks", "stopped rank", "host away"]
RANDOM_EPOCHS = int(os.environ.get("LOCKSTEP_CHAOS_EPOCHS", 15))
# Steps at the end: seconds, in which the rank that was hit last comes back.
LEFT_IN_PEACE = 150
# Strategies by which the loss of a rank takes a part of the state along, and what keeps another copy of it.
DIVIDED = {"zero1": {"copies": 2}, "fsdp": {"copies": 2}, "pipeline": {"copyEverySteps": 20}}
ROUNDING = 1e-5  # of the length of a tensor
RANDOM_SEED = int(os.environ.get("LOCKSTEP_CHAOS_SEED", 1))


def final_bits(folder):
    step, checkpoint = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    return step, checkpoints.digest_of_tensors(checkpoint)


@functools.cache
def quiet_bits(epochs, model):
    """Of one rank that nobody disturbs: what all the others must come to."""
    with tempfile.TemporaryDirectory(prefix="lockstep-quiet-") as folder:
        with Run(folder, job(folder, epochs, model, replicas=1)) as run:
            expect_complete(run, epochs, 1200)
            return final_bits(folder)


def job(folder, epochs=EPOCHS, model="small", replicas=3, **sections):
    return manifest(folder, replicas, sections={"failurePolicy": PATIENT, **sections}, epochs=epochs, evaluation={"everyEpochs": 1},
                    determinism="World", **(LARGE if model == "large" else {"model": slow_mlp.model(folder, PAUSE)}))


@contextlib.contextmanager
def unharmed(folder, epochs=EPOCHS, model="small", limit=LIMIT, **sections):
    """Runs the job while the caller does it harm, then judges. A LONG one must be whole again then."""
    with Run(folder, job(folder, epochs, model, **sections)) as run:
        yield run
        if epochs == LONG:
            epochs = complete_this_epoch(run, folder, lambda wanted: job(folder, wanted, model, **sections))
        else:
            expect_complete(run, epochs, limit)
        left = processes.with_variable("LOCKSTEP_SAMPLE_LEDGER", run.ledger)
        expect(not left, f"processes are left: {left}")
        expect(final_bits(folder) == quiet_bits(epochs, model), "the final weights differ from those of a quiet run")


def full_strength(run):
    """Three ranks have committed a step of the newest round."""
    records = [r for r in ledger.read(run.ledger) if r["event"] == "commit"]
    newest = max((r["round"] for r in records), default=0)
    return {r["rank"] for r in records if r["round"] == newest} == {0, 1, 2}


def until_full_strength(run):
    run.until("three ranks train", lambda: full_strength(run))


def rounds_begun(run):
    return len(re.findall(r"^round \d+: \d+ ranks?$", run.output(), re.M))


def rounds_ended(run):
    return len(re.findall(r"^round \d+ ended", run.output(), re.M))


def kill(pid, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError):  # it may have ended on its own
        os.kill(pid, number)


def test_rank_zero(folder):
    with unharmed(folder) as run:
        run.until_step(10)
        kill(run.ranks()[0])


def test_two_ranks_at_once(folder):
    with unharmed(folder) as run:
        run.until_step(10)
        for pid in run.ranks()[:2]:
            kill(pid)


def test_segmentation_fault(folder):
    with unharmed(folder) as run:
        run.until_step(10)
        kill(run.ranks()[1], signal.SIGSEGV)


def test_worker_and_rank_of_another(folder):
    with unharmed(folder) as run:
        run.until_step(10)
        ranks = run.ranks()
        kill(run.workers()[0])
        kill(ranks[2])


def test_while_a_round_forms(folder):
    with unharmed(folder) as run:
        run.until_step(10)
        ended = rounds_ended(run)
        kill(run.ranks()[1])
        run.until("the end of the round", lambda: rounds_ended(run) > ended)
        kill(run.ranks()[0])


def test_during_the_state_transfer(folder):
    with unharmed(folder, epochs=1, model="large") as run:
        run.until_step(5)
        before = run.ranks()
        kill(before[2])
        run.until("its return", lambda: len(run.ranks()) == 3 and before[2] not in run.ranks())
        begun = rounds_begun(run)
        run.until("the round with it", lambda: rounds_begun(run) > begun)
        kill(before[0])  # the source of the state
        until_full_strength(run)


def test_during_a_save(folder):
    often = {"uri": f"file://{folder}/checkpoints", "intervalSteps": 3}
    with unharmed(folder, epochs=1, model="large", checkpoint=often) as run:
        for step in (5, 15, 25):
            run.until_step(step)
            until_full_strength(run)
            kill(run.ranks()[0])


def test_all_ranks_during_a_save(folder):
    often = {"uri": f"file://{folder}/checkpoints", "intervalSteps": 3}
    with unharmed(folder, epochs=1, model="large", checkpoint=often) as run:
        run.until("a checkpoint", lambda: checkpoints.newest(pathlib.Path(folder, "checkpoints")))
        for pid in run.ranks():
            kill(pid)


def test_during_an_evaluation(folder):
    with unharmed(folder) as run:
        run.until_step(STEPS_PER_EPOCH - 1)
        kill(run.ranks()[1])
        until_full_strength(run)
        run.until_step(2 * STEPS_PER_EPOCH - 1)
        kill(run.ranks()[0])


def test_while_the_rendezvous_is_away(folder):
    with unharmed(folder) as run:
        run.until_step(10)
        run.process.send_signal(signal.SIGSTOP)
        run.until_step(30)  # it continues without it
        kill(run.ranks()[1])
        time.sleep(2)  # the fault: how long it is away
        run.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def frozen(run):
    """The process that hosts the rendezvous stands still."""
    run.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        run.process.send_signal(signal.SIGCONT)


def test_ranks_die_while_the_rendezvous_is_away(folder):
    """Nobody but the members can form the round again: one rank dies, rank 0 with the store, then two at once."""
    with unharmed(folder, epochs=LONG) as run:
        run.until_step(10)
        until_full_strength(run)
        round_before = ledger.newest_round(run.ledger)[0]
        with frozen(run):
            for victims in ([1], [0], [0, 2]):
                formation = ledger.newest_round(run.ledger)[0]
                ranks = run.ranks()
                for victim in victims:
                    kill(ranks[victim])
                run.until_joined(3, after=formation)
        expect(ledger.newest_round(run.ledger)[0] > round_before, "the ranks trained in the round that they had")


def test_silent_worker(folder):
    """Its supervisor is stopped for longer than the heartbeat time-out: the others go on without it, then it comes back."""
    with unharmed(folder, rendezvous=QUICK_TO_NOTICE, epochs=LONG) as run:
        run.until_step(10)
        victim = run.workers()[1]
        ended = rounds_ended(run)
        kill(victim, signal.SIGSTOP)
        run.until("a round without it", lambda: rounds_ended(run) > ended)
        without = run.until_joined(2)
        kill(victim, signal.SIGCONT)
        run.until_joined(3, after=without)


def test_random_faults(folder):
    """Seeded: the choice of faults and pauses is the same in each run, what they hit is not."""
    dice = random.Random(RANDOM_SEED)
    counts = {}
    with unharmed(folder, epochs=RANDOM_EPOCHS, limit=3600, rendezvous=QUICK_TO_NOTICE) as run:
        last = RANDOM_EPOCHS * STEPS_PER_EPOCH - LEFT_IN_PEACE
        while run.process.poll() is None and ledger.newest_commit(run.ledger) < last:
            fault = dice.choice(["rank", *FAULTS])
            counts[fault] = counts.get(fault, 0) + 1
            strike(run, fault, dice)
            run.until("three ranks train, or the end", lambda: full_strength(run) or run.process.poll() == 0)
            time.sleep(dice.uniform(0, 2))  # part of the schedule
    print(f"     seed {RANDOM_SEED}: {counts}")


@pytest.mark.parametrize("strategy", DIVIDED)
def test_each_fault_where_the_state_is_divided(folder, strategy):
    quiet, struck = pathlib.Path(folder, "quiet"), pathlib.Path(folder, "struck")

    def training(place, epochs, **fields):
        return manifest(place, sections={"failurePolicy": PATIENT, "rendezvous": QUICK_TO_NOTICE}, epochs=epochs, evaluation={"everyEpochs": 5},
                        model=slow_mlp.model(place, milliseconds=20),
                        optimizer={"name": "sgd", "learningRate": 0.002, "momentum": 0.9}, **fields)  # a larger rate would amplify rounding

    def divided(epochs):
        return training(struck, epochs, strategy=strategy, **{strategy: DIVIDED[strategy]})

    dice = random.Random(RANDOM_SEED)
    for place in (struck, quiet):
        place.mkdir()
    with Run(struck, divided(LONG)) as run:
        for fault in dice.sample(FAULTS, len(FAULTS)):
            until_full_strength(run)
            before = ledger.newest_round(run.ledger)[0]
            strike(run, fault, dice)
            if fault != "stopped rank":  # which is only late
                run.until_joined(3, after=before)
        reached = ledger.newest_commit(run.ledger)  # which may be redone
        run.until("a new step", lambda: ledger.newest_commit(run.ledger) > reached)
        epochs = complete_this_epoch(run, struck, divided)
    with Run(quiet, training(quiet, epochs, replicas=1)) as run:
        expect_complete(run, epochs)
    found, expected = (checkpoints.floats(checkpoints.newest(place / "checkpoints")[1]) for place in (struck, quiet))
    worst = max(math.dist(numbers, found[name]) / math.hypot(*numbers) for name, numbers in expected.items() if not name.startswith("optimizer."))
    print(f"     {epochs} epochs; relative distance from a quiet run: {worst:.2g}")
    expect(worst < ROUNDING, f"weights differ from those of a quiet run by {worst}")


def strike(run, fault, dice):
    ranks, workers = run.ranks(), run.workers()
    if fault == "worker":
        return kill(dice.choice(workers))
    if fault == "host away":
        run.process.send_signal(signal.SIGSTOP)
        kill(dice.choice(ranks))
        time.sleep(dice.uniform(0, 1))  # how long it is away
        return run.process.send_signal(signal.SIGCONT)
    if fault == "stopped rank":
        victim = dice.choice(ranks)
        kill(victim, signal.SIGSTOP)
        time.sleep(dice.uniform(0, 1))  # how long it is stopped
        return kill(victim, signal.SIGCONT)
    count = {"rank": 1, "rank zero": 1, "two ranks": 2, "all ranks": 3}[fault]
    victims = ranks[:1] if fault == "rank zero" else dice.sample(ranks, min(count, len(ranks)))
    for pid in victims:
        kill(pid)
