"""One job on several machines of a Network, as torchrun's variables describe it; what becomes of it."""
import json
import os
import pathlib
import subprocess

import ledger
import processes
from build_folder import BIN
from cases import LIMIT, expect, until
from local_run import BATCH, SAMPLES, children, manifest, programs_of

LOCKSTEP = str(BIN / "lockstep")
SECRET = "0123456789abcdef"
UNTIL_SEEN = 20  # epochs: seconds on any machine, in which it is found at work


class Site:
    """A manifest that machines run, each with the variables that a launcher would set."""

    def __init__(self, network, folder, machines=2, **job):
        self.network, self.folder, self.machines = network, folder, machines
        self.manifest = manifest(folder, replicas=1, **job)  # how many replicas there are the machines say
        self.ledger = f"{folder}/ledger"
        os.makedirs(self.ledger, exist_ok=True)
        self.processes = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()  # its worker and its ranks die with it
            process.wait()
        processes.expect_end("LOCKSTEP_SAMPLE_LEDGER", self.ledger)

    def start(self, k, **changes):
        variables = {"NNODES": self.machines, "NODE_RANK": k, "MASTER_ADDR": self.network.address(0), "LOCKSTEP_TOKEN": SECRET,
                     "LOCKSTEP_SAMPLE_LEDGER": self.ledger, "HTTP_PROXY": "http://127.0.0.1:9", **changes}
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        with open(f"{self.folder}/output-{k}.txt", "a") as log:
            words = self.network.command(k, LOCKSTEP, "run", self.manifest, "--folder", f"{self.folder}/run")
            self.processes[k] = subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    def start_all(self, **changes):
        for k in reversed(range(self.machines)):  # the others wait for machine 0
            self.start(k, **changes)

    def worker(self, k):
        return next((pid for pid, name in children(self.processes[k].pid) if name == "lockstep"), None)

    def ranks(self, k):
        worker = self.worker(k)
        return [] if worker is None else [pid for pid, name in children(worker) if name == "lockstep-rank"]

    def programs(self, k):
        worker = self.worker(k)
        return [] if worker is None else programs_of([pid for pid, name in children(worker) if name == "lockstep"])

    def output(self, k):
        return pathlib.Path(f"{self.folder}/output-{k}.txt").read_text()

    def said(self):
        logs = [path.read_text()[-3000:] for path in sorted(pathlib.Path(self.folder).rglob("*.log"))]
        return "\n".join([self.output(k) for k in self.processes] + logs)

    def until(self, what, condition):
        until(what, condition, LIMIT, 0.02, self.said)

    def until_step(self, step, world=None):
        self.until(f"step {step} with {world or 'any number of'} ranks", lambda: any(
            r["event"] == "commit" and r["step"] >= step for r in ledger.read(self.ledger)) and (
                world is None or len(ranks_of_newest_round(self.ledger)) == world))

    def codes(self, *machines):
        found = {}
        for k in machines or sorted(self.processes):
            try:
                found[k] = self.processes[k].wait(LIMIT)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"machine {k} does not end\n{self.said()}") from None
        return found

    def expect_complete(self):
        codes = self.codes()
        expect(set(codes.values()) == {0}, f"exit codes {codes}\n{self.said()}")
        expect_each_sample_once(self.ledger, UNTIL_SEEN)


def write_program(path, script, nproc=1):
    """A manifest whose ranks run the lines of a shell."""
    container = {"name": "trainer", "image": "none", "command": ["sh", "-c", script]}
    spec = {"nprocPerNode": nproc, "worker": {"template": {"spec": {"containers": [container]}}}}
    pathlib.Path(path).write_text(json.dumps(
        {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "program"}, "spec": spec}))


def expect_each_sample_once(records, epochs, samples=SAMPLES, batch=BATCH):
    problems = ledger.check_exactly_once(records, samples, batch, epochs)
    expect(not problems, "; ".join(problems))


def ranks_of_newest_round(records):
    commits = [r for r in ledger.read(records) if r["event"] == "commit"]
    newest = max((r["round"] for r in commits), default=0)
    return {r["rank"] for r in commits if r["round"] == newest}
