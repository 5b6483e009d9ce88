"""Ranks that stop without dying, in `lockstep run`: found within their bound, written down, ended and replaced; and no alarm where
a rank is only slow.
"""
import os
import pathlib
import signal
import time

import ledger
from cases import LIMIT, expect
from local_run import BATCH, EPOCHS, LONGER, SAMPLES, Run, expect_complete, logged, manifest, slow_manifest


def log_of(run_folder):
    return "".join(p.read_text() for p in sorted(pathlib.Path(run_folder, "run").glob("*.log")))


def stop_a_rank(folder, bound, **policy):
    path = slow_manifest(folder, sections={"healthPolicy": policy}, epochs=LONGER, evaluation={"everyEpochs": LONGER})
    with Run(folder, path) as run:
        run.until_step(80)
        before = run.ranks()
        victim = before[1]
        os.kill(victim, signal.SIGSTOP)
        run.until("the end of the stopped rank", lambda: victim not in run.ranks())
        run.until("a new rank", lambda: len(run.ranks()) == 3)
        expect(set(run.ranks()) >= {before[0], before[2]}, "a survivor's process was replaced")
        expect_complete(run, LONGER)
    hangs = logged(folder, "rank hangs")
    expect(len(hangs) == 1, f"one hang was expected: {hangs}")
    hang = hangs[0]
    expect(hang["why"] == "does not answer", f"{hang}")
    # How soon after its bound: unit/runtime/launch/supervisor/hang_detector_test.cc. Here the machine may be busy with other things.
    expect(bound <= hang["bound_seconds"] <= hang["silent_seconds"], f"{hang}, bound {bound} s")
    threads = logged(folder, "threads of the rank that hangs")
    expect(len(threads) == 1 and "T (stopped)" in threads[0]["threads"], f"{threads}")
    left = [r["reason"] for r in logged(folder, "leaving the round") if "hangs" in r.get("reason", "")]
    expect(len(left) == 1, f"the hang was not reported to the rendezvous once: {left}")
    print(f"     stopped rank -> found after {hang['silent_seconds']:.1f} s, bound {bound} s")


def test_a_stopped_rank_is_found_within_the_given_bound(folder):
    stop_a_rank(folder, 4, stepTimeoutSeconds=4)


def test_a_stopped_rank_is_found_within_the_learned_bound(folder):
    stop_a_rank(folder, 10)


def test_a_rank_that_is_late_by_more_than_a_minute_breaks_no_round(folder):
    path = slow_manifest(folder, sections={"healthPolicy": {"stepTimeoutSeconds": LIMIT}}, epochs=LONGER,
                    evaluation={"everyEpochs": LONGER})
    with Run(folder, path) as run:
        run.until_step(80)
        before = sorted(run.ranks())
        late_until = time.monotonic() + 65
        os.kill(before[1], signal.SIGSTOP)
        # The time is what is tested: no limit but that of healthPolicy ends the wait of the others.
        run.until("that it is late", lambda: time.monotonic() >= late_until)
        os.kill(before[1], signal.SIGCONT)
        expect(sorted(run.ranks()) == before, "a process was replaced")
        expect_complete(run, LONGER)
    expect(not logged(folder, "round broken"), f"{logged(folder, 'round broken')}")


def test_a_hang_that_is_only_reported_ends_by_itself(folder):
    path = slow_manifest(folder, sections={"healthPolicy": {"stepTimeoutSeconds": 3, "onHang": "Report"}}, epochs=LONGER,
                    evaluation={"everyEpochs": LONGER})
    with Run(folder, path) as run:
        run.until_step(80)
        victim = run.ranks()[1]
        os.kill(victim, signal.SIGSTOP)
        run.until("the report", lambda: logged(folder, "rank hangs"))
        os.kill(victim, signal.SIGCONT)
        expect_complete(run, LONGER)
        expect(not logged(folder, "threads of the rank that hangs"), "the rank was to be left alone")


def test_a_rank_writes_its_stack_when_asked(folder):
    with Run(folder, slow_manifest(folder, epochs=LONGER)) as run:
        run.until_step(20)
        os.kill(run.ranks()[1], signal.SIGUSR1)
        run.until("the stack", lambda: "stack of the training thread:" in log_of(folder))
        expect_complete(run, LONGER)
    lines = log_of(folder).splitlines()
    frames = [line for line in lines if line.startswith("[rank ") and "lockstep-rank(" in line]
    expect(frames, "no frame of the program is in the log, labelled with its rank")


def test_a_slow_evaluation_is_no_hang(folder):
    bound = 3
    path = manifest(folder, sections={"healthPolicy": {"stepTimeoutSeconds": bound}},
                    data={"format": "synthetic", "synthetic": {"samples": SAMPLES, "testSamples": 400_000, "shape": [1, 8, 8],
                                                               "classes": 10}},
                    evaluation={"everyEpochs": EPOCHS - 1, "batchSize": 1})
    with Run(folder, path) as run:
        expect_complete(run)
    commits = sorted((r["step"], r["time"]) for r in ledger.read(run.ledger) if r["event"] == "commit")
    before = (EPOCHS - 1) * -(-SAMPLES // BATCH)
    seconds = min(t for s, t in commits if s == before) - max(t for s, t in commits if s == before - 1)
    expect(seconds > bound, f"the evaluation took {seconds:.1f} s: too quick to show anything")
    expect(not logged(folder, "rank hangs"), f"{logged(folder, 'rank hangs')}")
    print(f"     evaluation {seconds:.1f} s, bound of a step {bound} s: no alarm")
