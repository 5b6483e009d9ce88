"""Ranks that are slower than the others, in `lockstep run`: found, named, and acted on once; no alarm where nobody is; and shares
that make up for one.
"""
import os
import pathlib
import re

import ledger
from cases import expect
from local_run import BATCH, SAMPLES, Run, complete_this_epoch, expect_complete, manifest, slowed

EPOCHS = 20
LONG = 10_000  # epochs: it is stopped before
FOUND = re.compile(r"rank (\d) \(local-worker-(\d)\) is a straggler: it computes (\S+) times")


def job(folder, epochs=LONG, **policy):
    # Steps that last long enough to be slowed down, and windows of a few heartbeats.
    return manifest(folder, replicas=2, epochs=epochs, model={"name": "mlp", "mlp": {"hiddenSizes": [512, 512]}},
                    evaluation={"everyEpochs": 10},
                    sections={"rendezvous": {"heartbeatIntervalSeconds": 1},
                              "healthPolicy": {"straggler": {"factor": 2, "windowSteps": 40, **policy}}})


def rank_of(run, slot):
    name = f"local-worker-{slot}".encode()
    for pid in run.ranks():
        if b"LOCKSTEP_POD_NAME=" + name in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pid
    return None


def log_of(folder, slot):
    return pathlib.Path(folder, "run", f"local-worker-{slot}.log").read_text()


def test_a_slow_rank_is_named_and_left_alone(folder):
    with Run(folder, job(folder)) as run:
        run.until_step(20)
        before = sorted(run.ranks())
        with slowed(rank_of(run, 1), 4):
            run.until("the straggler's name", lambda: FOUND.search(run.output()))
        expect(sorted(run.ranks()) == before, "a process was replaced")
        found = FOUND.findall(run.output())
        complete_this_epoch(run, folder, lambda epochs: job(folder, epochs))
    expect([f[:2] for f in found] == [("1", "1")], f"found: {found}")
    print(f"     slowed 4 times, found at {found[0][2]} times")


def test_a_slow_rank_is_restarted_once(folder):
    with Run(folder, job(folder, action="Restart")) as run:
        run.until_step(20)
        healthy, victim = rank_of(run, 0), rank_of(run, 1)
        with slowed(victim, 4):
            run.until("its end", lambda: victim not in run.ranks())
        run.until("a new process", lambda: rank_of(run, 1))
        second = rank_of(run, 1)
        run.until("its return", lambda: log_of(folder, 1).count("rank entered the round") >= 2)
        # The first finding ended the round that it was of, and so may have passed too soon to be shown.
        said = len(run.output())
        with slowed(second, 4):
            run.until("that it is slow again", lambda: FOUND.search(run.output()[said:]))
        expect(sorted(run.ranks()) == sorted([healthy, second]), "it was restarted again")
        left = [line for line in log_of(folder, 1).splitlines() if "leaving the round" in line and "is a straggler" in line]
        expect(len(left) == 1, f"left the round for it: {left}")
        complete_this_epoch(run, folder, lambda epochs: job(folder, epochs, action="Restart"))


def test_nobody_is_slow_where_ranks_evaluate_and_save(folder):
    path = manifest(folder, replicas=2, epochs=EPOCHS, evaluation={"everyEpochs": 1, "batchSize": 1},
                    data={"format": "synthetic", "synthetic": {"samples": SAMPLES, "testSamples": 2000, "shape": [1, 28, 28],
                                                               "classes": 10}},
                    sections={"rendezvous": {"heartbeatIntervalSeconds": 1},
                              "checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": 20},
                              "healthPolicy": {"straggler": {"factor": 3, "windowSteps": 40}}})
    with Run(folder, path) as run:
        expect_complete(run, EPOCHS)
        expect("straggler" not in run.output(), run.output()[-4000:])


def steps_per_second(run, begin, end):
    times = {}
    for record in ledger.read(run.ledger):
        if record["event"] == "commit":
            times[record["step"]] = max(times.get(record["step"], 0), record["time"])
    return (end - begin) / (times[end] - times[begin])


def test_shares_by_speed_make_up_for_a_slow_rank(folder):
    batch = 8 * BATCH  # much to compute in a step, beside what each rank does whatever its share
    steps_per_epoch = -(-SAMPLES // batch)
    # Shares are measured in the first two epochs.
    begin, end, epochs = 2 * steps_per_epoch, 3 * steps_per_epoch, 4
    rates = {}
    for balance in ("Equal", "Speed"):
        place = f"{folder}/{balance}"
        os.makedirs(place)
        # Much to compute for a sample, little for a step.
        path = manifest(place, replicas=2, minimum=2, epochs=epochs, globalBatchSize=batch, balance=balance, evaluation={"everyEpochs": epochs},
                        model={"name": "cnn", "cnn": {"channels": [64, 64], "hiddenSize": 16}})
        with Run(place, path) as run:
            run.until("both ranks", lambda: rank_of(run, 0) and rank_of(run, 1))
            with slowed(rank_of(run, 1), 4):
                run.until_step(end)
            expect_complete(run, epochs, batch=batch)
            shares = {(r["step"], r["rank"]): len(r["ids"]) for r in ledger.read(run.ledger) if r["event"] == "contribute"}
            rates[balance] = steps_per_second(run, begin, end)
        expect(shares[(0, 0)] == shares[(0, 1)] == batch // 2, f"at first nobody's speed is known: {shares[(0, 0)]}")
        fast, slow = shares[(end - 2, 0)], shares[(end - 2, 1)]
        expect(fast + slow == batch, f"shares {fast} and {slow} of {batch}")
        if balance == "Equal":
            expect(fast == slow, f"shares {fast} and {slow}")
        else:
            expect(fast >= 1.5 * slow > 0, f"shares {fast} and {slow} for a rank that is slowed 4 times")
        print(f"     balance {balance}: shares {fast} and {slow}, {rates[balance]:.1f} steps/s")
    print(f"     one rank slowed 4 times: balance Speed makes {rates['Speed'] / rates['Equal']:.2f} times the steps of Equal")
