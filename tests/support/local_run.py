"""A `lockstep run` of real processes for tests: its manifest, its workers and ranks, its sample ledger."""
import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import checkpoints
import ledger
import processes
import slow_mlp
from build_folder import BIN
from cases import ENDS_WITH_US, LIMIT, expect, growing_pause

SAMPLES, BATCH, EPOCHS = 2017, 32, 4  # in the last step of an epoch one sample: most ranks have nothing to do
# Epochs of a job that something is done to: seconds while its steps wait, so that it is not complete before the test gets its turn.
LONGER = 6
# Short, so that a few steps feel it alike.
MOMENT = 0.002


def manifest(folder, replicas=3, minimum=1, sections=None, **training):
    """`sections` replaces sections of the spec, `training` fields of that section; None takes one away."""
    spec = {
        "nprocPerNode": 1,
        "worker": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "trainer", "image": "none"}]}}},
        "elasticPolicy": {"minReplicas": minimum, "maxReplicas": max(replicas, 4)},
        "training": {
            "model": {"name": "mlp", "mlp": {"hiddenSizes": [64]}},
            "data": {"format": "synthetic",
                     "synthetic": {"samples": SAMPLES, "testSamples": 200, "shape": [1, 28, 28], "classes": 10}},
            "optimizer": {"name": "sgd", "learningRate": 0.05, "momentum": 0.9},
            "globalBatchSize": BATCH, "epochs": EPOCHS, "seed": 7, "evaluation": {"everyEpochs": 2}, **training},
        "checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": 40},
        **(sections or {}),
    }
    spec["training"] = {name: value for name, value in spec["training"].items() if value is not None}
    path = pathlib.Path(folder) / "job.json"
    path.write_text(json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
                                "metadata": {"name": "local"}, "spec": spec}))
    return path


def slow_manifest(folder, replicas=3, milliseconds=10, hidden=(64,), **more):
    """Of a job whose forward passes wait until `Run.finish`, so that what is done to it happens while it trains."""
    return manifest(folder, replicas, model=slow_mlp.model(folder, milliseconds, hidden), **more)


PROCESS_IDS = int(pathlib.Path("/proc/sys/kernel/pid_max").read_text())


def by_parent():
    """Process id -> [(start, process id)] of its direct children."""
    found = collections.defaultdict(list)
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
            found[int(fields[1])].append((int(fields[19]), int(entry)))
    return found


def children(pid, among=None):
    """(pid, program name) of the direct children, in the order of their start: process ids begin again after the greatest. `among`: by_parent, for
    those who ask for several."""
    found = []
    for _, child in sorted((among or by_parent())[pid], key=lambda each: (each[0], (each[1] - pid) % PROCESS_IDS)):
        with contextlib.suppress(OSError):
            arguments = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            found.append((child, os.path.basename(arguments[0].decode())))
    return found


def programs_of(ranks, among=None):
    """Process ids of the programs that these `lockstep program` run, without interpreters that are parked for the next round."""
    among = among or by_parent()
    found = [[pid for pid, _ in children(rank, among) if not _is_parked(pid)] for rank in ranks]
    return [pids[0] for pids in found if pids]  # one that has just been started is not named yet


def _is_parked(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text() == "lockstep-parked\n"
    except OSError:
        return False


class Run:
    """One `lockstep run`, ended with everything it started when the case ends. The steps of a slow_manifest wait until quickly() or finish()."""

    def __init__(self, folder, path, environment=None, terminal=None, arguments=()):
        """`terminal`: a descriptor to write to instead of the file that output() reads; `arguments`: of the command, beside its own."""
        self.folder = folder
        self.ledger = f"{folder}/ledger"
        os.makedirs(self.ledger, exist_ok=True)
        slow_mlp.slowly(folder)
        self.log = open(f"{folder}/output.txt", "a+")
        self.process = subprocess.Popen(
            [*ENDS_WITH_US, f"{BIN}/lockstep", "run", str(path), "--folder", f"{folder}/run", *arguments], stdout=terminal or self.log,
            stderr=subprocess.STDOUT, env={**os.environ, "LOCKSTEP_SAMPLE_LEDGER": self.ledger, **(environment or {})})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()  # its workers and their ranks die with it
            self.process.wait()
        self.log.close()
        processes.expect_end("LOCKSTEP_SAMPLE_LEDGER", self.ledger)

    def workers(self, among=None):
        return [pid for pid, name in children(self.process.pid, among) if name == "lockstep"]

    def ranks(self):
        among = by_parent()
        return [pid for worker in self.workers(among) for pid, name in children(worker, among) if name == "lockstep-rank"]

    def programs(self):
        """Process ids of the commands, below the ranks that run them."""
        among = by_parent()
        return programs_of([pid for worker in self.workers(among) for pid, name in children(worker, among) if name == "lockstep"], among)

    def until(self, what, condition):
        begin = now = time.monotonic()
        while now < begin + LIMIT:
            if condition():
                return
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended with {self.process.returncode} before: {what}\n{self.output()[-4000:]}")
            time.sleep(growing_pause(now - begin, least=0.02, most=0.1))
            now = time.monotonic()
        raise AssertionError(f"not within {LIMIT} s: {what}\n{self.output()[-4000:]}")

    def until_step(self, step):
        self.until(f"step {step}", lambda: ledger.newest_commit(self.ledger) >= step)

    def until_joined(self, ranks, after=0):
        """The number of a round after that one in which so many ranks commit steps."""
        def is_there():
            newest, members = ledger.newest_round(self.ledger)
            return newest > after and len(members) == ranks
        self.until(f"a round of {ranks} ranks after round {after}", is_there)
        return ledger.newest_round(self.ledger)[0]

    def quickly(self):
        """The steps of a slow_manifest wait no longer."""
        slow_mlp.quickly(self.folder)

    def finish(self, limit=LIMIT):
        self.quickly()
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run did not end within {limit} s\n{self.output()[-4000:]}") from None

    def output(self):
        return pathlib.Path(self.log.name).read_text()


def logged(folder, message=""):
    """What all workers of the run in that folder have logged, or only the records with this message."""
    texts = [path.read_text().rpartition("\n")[0] for path in pathlib.Path(folder, "run").glob("*.log")]  # the last line may be only begun
    lines = [line for text in texts for line in text.splitlines() if line.startswith("{") and message in line]
    return [record for record in map(json.loads, lines) if message in ("", record["message"])]


def expect_complete(run, epochs=EPOCHS, limit=LIMIT, batch=BATCH):
    code = run.finish(limit)
    expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    problems = ledger.check_exactly_once(run.ledger, SAMPLES, batch, epochs)
    expect(not problems, "; ".join(problems))


def stop(run, folder):
    """Ends all ranks by SIGTERM; what they stored last, no step behind: (step, folder of the checkpoint)."""
    run.process.send_signal(signal.SIGTERM)
    code = run.finish()
    expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")
    reached = ledger.newest_commit(run.ledger)
    step, checkpoint = checkpoints.newest(pathlib.Path(folder, "checkpoints")) or (0, None)
    expect(step == reached + 1, f"step {reached} was the last one that counted, but the newest checkpoint is of {step} steps")
    return step, checkpoint


def complete_this_epoch(run, folder, job, environment=None):
    """Ends a job that is longer than any test, after what the test waited for, and completes it with the epoch that it is in: a job of a
    fixed length may be through before that on a machine where a process starts slowly. `job(epochs)` writes its manifest. Returns the epochs."""
    step, _ = stop(run, folder)
    epochs = step // -(-SAMPLES // BATCH) + 1
    with Run(folder, job(epochs), environment) as rest:
        expect_complete(rest, epochs)
    return epochs


def seconds_without_commit(run, after):
    """Longest gap between commits of surviving ranks after a wall time, from the ledger's own times."""
    times = sorted(r["time"] for r in ledger.read(run.ledger) if r["event"] == "commit" and r.get("time", 0) >= after)
    return times[0] - after if times else None


def ledger_of(pid):
    """The sample ledger that a rank writes, None where it has none yet."""
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # others come and go
            name = os.readlink(link)
            if name.endswith(".jsonl"):
                return pathlib.Path(name)
    return None


def unfinished(pid):
    """The steps that a rank, which is stopped, has worked on since its last commit, in this round."""
    path = ledger_of(pid)
    records = ledger.File(path).read() if path else []
    if not records:
        return []
    mine = [r for r in records if r["round"] == records[-1]["round"]]
    done = max((r["step"] for r in mine if r["event"] == "commit"), default=-1)
    return sorted(r["step"] for r in mine if r["event"] == "contribute" and r["step"] > done)


@contextlib.contextmanager
def slowed(pid, times):
    """The process runs for one of `times` moments and is stopped for the others."""
    done = threading.Event()

    def work():
        with contextlib.suppress(ProcessLookupError):
            while not done.wait(MOMENT):
                os.kill(pid, signal.SIGSTOP)
                done.wait(MOMENT * (times - 1))
                os.kill(pid, signal.SIGCONT)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        done.set()
        worker.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
