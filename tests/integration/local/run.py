#!/usr/bin/env python3
"""`lockstep run` with real processes: complete, lose a rank, a worker, all ranks at once, stop and resume, bad input.

run.py BIN_FOLDER [NAME…]    runs all cases, or those named; prints `N passed, N failed`
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import ledger  # noqa: E402

SAMPLES, BATCH, EPOCHS = 2000, 32, 4
DEADLINE = 120


def manifest(folder, replicas=3, minimum=1, **training):
    spec = {
        "nprocPerNode": 1,
        "worker": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "trainer", "image": "localhost/lockstep-worker:0.1.0"}]}}},
        "elasticPolicy": {"minReplicas": minimum, "maxReplicas": max(replicas, 4)},
        "training": {
            "model": {"name": "mlp", "mlp": {"hiddenSizes": [64]}},
            "data": {"format": "synthetic",
                     "synthetic": {"samples": SAMPLES, "testSamples": 200, "shape": [1, 28, 28], "classes": 10}},
            "optimizer": {"name": "sgd", "learningRate": 0.05, "momentum": 0.9},
            "globalBatchSize": BATCH, "epochs": EPOCHS, "seed": 7, "evaluation": {"everyEpochs": 2}, **training},
        "checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": 40},
    }
    path = pathlib.Path(folder) / "job.json"
    path.write_text(json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
                                "metadata": {"name": "local"}, "spec": spec}))
    return path


def children(pid):
    """(pid, program name) of the direct children."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            found.append((int(entry.name), os.path.basename(arguments[0].decode())))
    return found


class Run:
    """One `lockstep run`, ended with everything it started when the case ends."""

    def __init__(self, binaries, folder, path):
        self.ledger = f"{folder}/ledger"
        os.makedirs(self.ledger, exist_ok=True)
        self.log = open(f"{folder}/output.txt", "a+")
        self.process = subprocess.Popen(
            [f"{binaries}/lockstep", "run", str(path), "--folder", f"{folder}/run"], stdout=self.log,
            stderr=subprocess.STDOUT, env={**os.environ, "LOCKSTEP_SAMPLE_LEDGER": self.ledger})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()  # its workers and their ranks die with it
            self.process.wait()

    def workers(self):
        return [pid for pid, name in children(self.process.pid) if name == "lockstep"]

    def ranks(self):
        return [pid for worker in self.workers() for pid, name in children(worker) if name == "lockstep-rank"]

    def until(self, what, condition):
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            if condition():
                return
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended with {self.process.returncode} before: {what}\n{self.output()}")
            time.sleep(0.02)
        raise AssertionError(f"not within {DEADLINE} s: {what}\n{self.output()}")

    def until_step(self, step):
        self.until(f"step {step}", lambda: ledger.newest_commit(self.ledger) >= step)

    def finish(self):
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run did not end within {DEADLINE} s\n{self.output()}") from None

    def output(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()[-4000:]


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def expect_complete(run):
    code = run.finish()
    expect(code == 0, f"exit code {code}\n{run.output()}")
    problems = ledger.check_exactly_once(run.ledger, SAMPLES, BATCH, EPOCHS)
    expect(not problems, "; ".join(problems))


def seconds_without_commit(run, after):
    """Longest gap between commits of surviving ranks after a wall time, from the ledger's own times."""
    times = sorted(r["time"] for r in ledger.read(run.ledger) if r["event"] == "commit" and r.get("time", 0) >= after)
    return times[0] - after if times else None


def completes(binaries, folder):
    with Run(binaries, folder, manifest(folder, replicas=2)) as run:
        expect_complete(run)
        expect(any(pathlib.Path(folder, "checkpoints").rglob("manifest.json")), "no checkpoint was stored")


def survives_a_killed_rank(binaries, folder):
    with Run(binaries, folder, manifest(folder)) as run:
        run.until_step(60)
        before = run.ranks()
        expect(len(before) == 3, f"3 rank processes expected, {len(before)} found")
        killed_at = time.time()
        os.kill(before[1], signal.SIGKILL)
        run.until("the rank's return", lambda: len(run.ranks()) == 3 and before[1] not in run.ranks())
        expect(set(run.ranks()) >= {before[0], before[2]}, "a survivor's process was replaced")
        expect_complete(run)
        gap = seconds_without_commit(run, killed_at)
        if gap is not None:
            print(f"     killed rank -> survivors' next step: {gap:.3f} s")


def survives_a_killed_worker(binaries, folder):
    with Run(binaries, folder, manifest(folder)) as run:
        run.until_step(60)
        survivors = run.ranks()
        victim = run.workers()[2]
        survivors = [pid for pid in survivors if pid not in [p for p, _ in children(victim)]]
        os.kill(victim, signal.SIGKILL)
        run.until("the worker's return", lambda: victim not in run.workers() and len(run.ranks()) == 3)
        expect(set(run.ranks()) >= set(survivors), "a survivor's process was replaced")
        expect_complete(run)


def restarts_from_the_checkpoint_when_all_ranks_die(binaries, folder):
    with Run(binaries, folder, manifest(folder)) as run:
        run.until("a checkpoint", lambda: any(pathlib.Path(folder, "checkpoints").rglob("manifest.json")))
        for pid in run.ranks():
            os.kill(pid, signal.SIGKILL)
        expect_complete(run)
        expect('"checkpoint"' in "".join(p.read_text() for p in pathlib.Path(folder, "run").glob("*.log")),
               "no rank says that its state came from a checkpoint")


def stops_on_sigterm_and_resumes(binaries, folder):
    path = manifest(folder)
    with Run(binaries, folder, path) as run:
        run.until_step(50)
        run.process.send_signal(signal.SIGTERM)
        expect(run.finish() == 143, f"exit code {run.process.returncode}")
        reached = ledger.newest_commit(run.ledger)
    saved = max(int(p.parent.name.rpartition("-")[2]) for p in pathlib.Path(folder, "checkpoints").rglob("manifest.json"))
    expect(saved >= reached, f"stopped after step {reached} was committed, but the newest checkpoint is {saved}")
    with Run(binaries, folder, path) as run:
        run.finish()
        expect("complete" in run.output(), run.output())
        problems = ledger.check_exactly_once(run.ledger, SAMPLES, BATCH, EPOCHS)
        expect(not problems, "; ".join(problems))


def one_and_three_ranks_learn_the_same(binaries, folder):
    losses = {}
    for replicas in (1, 3):
        place = f"{folder}/{replicas}"
        os.makedirs(place)
        with Run(binaries, place, manifest(place, replicas=replicas)) as run:
            expect_complete(run)
            losses[replicas] = float(run.output().rpartition("test accuracy ")[2].partition("loss ")[2].split()[0])
    difference = abs(losses[1] - losses[3])
    expect(difference <= 1e-3 * max(1.0, losses[1]), f"final test losses differ: {losses}")


def names_what_is_wrong(binaries, folder):
    cases = {
        "spec.training.data.path": {"data": {"format": "idx", "path": "/nowhere"}},
        "spec.training.globalBatchSize": {"globalBatchSize": -1},
        "spec.training.model.name": {"model": {"name": "resnet50"}},
        "spec.training.modle": {"modle": {}},
    }
    for field, training in cases.items():
        with Run(binaries, folder, manifest(folder, **training)) as run:
            code = run.finish()
            expect(code in (2, 3), f"{field}: exit code {code}\n{run.output()}")
            expect(field in run.output(), f"{field} is not named:\n{run.output()}")


CASES = [completes, survives_a_killed_rank, survives_a_killed_worker, restarts_from_the_checkpoint_when_all_ranks_die,
         stops_on_sigterm_and_resumes, one_and_three_ranks_learn_the_same, names_what_is_wrong]


def main():
    binaries, names = sys.argv[1], sys.argv[2:]
    passed = failed = 0
    for case in CASES:
        if names and case.__name__ not in names:
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="lockstep-local-") as folder:
            try:
                case(binaries, folder)
                passed += 1
                print(f"ok   {case.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
            except AssertionError as problem:
                failed += 1
                print(f"FAIL {case.__name__}: {problem}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
