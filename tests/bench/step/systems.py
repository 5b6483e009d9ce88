"""The systems that step.py and gpu/gpu.py measure: each starts one training in a folder of its own, says how far it is, and ends all of it again."""
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import torch_python  # noqa: E402
from local_run import children  # noqa: E402

TRAINING = {"seed": 7, "threads": 1}
# Batches of one sample diverge at the rates that one would train with, and a training that diverges ends.
SGD = {"name": "sgd", "learningRate": 1e-6, "momentum": 0.9}
TICKS = os.sysconf("SC_CLK_TCK")


class Case(NamedTuple):
    model: dict
    batch: int  # of each rank
    device: str = "cpu"
    ranks: tuple = (2, 1)  # the second: only ours and eager
    optimizer: dict = SGD
    precision: str = "fp32"
    samples: int = 8192
    shape: tuple = (1, 28, 28)  # of a sample, where it is no text
    classes: int = 10
    workers: int = 1  # threads of our loader


def cpu_seconds(pid):
    """Of a process and all of its threads, those that have ended, too."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_bytes(pid):
    """The most memory that a process has had so far."""
    return next(int(line.split()[1]) << 10 for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))


def descendants(pid):
    """(pid, program name) of all of them."""
    found = children(pid)
    return found + [below for child, _ in found for below in descendants(child)]


class System:
    """One training with `ranks` processes of `case`."""

    def __init__(self, folder, case, ranks):
        self.folder, self.case, self.ranks = pathlib.Path(folder), case, ranks
        self.log = open(self.folder / "output.txt", "w+")
        self.processes = []
        self.started = time.time()

    def start(self, command, **environment):
        # The same number of threads on every side; connections stay on this machine.
        environment = {**os.environ, "OMP_NUM_THREADS": str(TRAINING["threads"]), "GLOO_SOCKET_IFNAME": "lo", **environment}
        self.processes.append(subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, env=environment, process_group=0))

    def all_processes(self):
        """(pid, whether it is a rank)"""
        return [(pid, name == self.rank_program) for process in self.processes
                for pid, name in [(process.pid, self.root_program), *descendants(process.pid)]]

    def cpu_seconds(self):
        """(of the ranks, of what watches over them)"""
        seconds = [0.0, 0.0]
        for pid, is_rank in self.all_processes():
            seconds[0 if is_rank else 1] += cpu_seconds(pid)
        return tuple(seconds)

    def peak_bytes(self):
        """Of the rank that has used most memory so far."""
        return max(peak_bytes(pid) for pid, is_rank in self.all_processes() if is_rank)

    def check(self):
        if any(process.poll() is not None for process in self.processes):
            raise SystemExit(f"{self.name} ended by itself\n{self.output()}")

    def check_device(self):
        """That it trains where its case says; DDP would have ended."""

    def output(self):
        return pathlib.Path(self.log.name).read_text()[-3000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGKILL if self.may_be_killed else signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the group is what it started
                process.wait()


class Lockstep(System):
    name = "lockstep"
    root_program, rank_program = "lockstep", "lockstep-rank"
    may_be_killed = True  # its workers and their ranks die with it

    def __init__(self, folder, case, ranks, programs, **training):
        super().__init__(folder, case, ranks)
        job = self.folder / "job.json"
        job.write_text(json.dumps(self.manifest(training)))
        self.started = time.time()  # making the data is not its matter
        self.ledger = self.folder / "ledger"
        self.port = None
        # A line for each step is for the start alone: otherwise it would be part of what is measured.
        environment = {"LOCKSTEP_SAMPLE_LEDGER": str(self.ledger)} if training.get("steps") else {}
        self.ledger.mkdir()
        self.start([f"{programs}/lockstep", "run", job, "--folder", self.folder / "run"], **environment)

    def data(self):
        case = self.case
        if "gpt" not in case.model:
            return {"format": "synthetic", "workers": case.workers,
                    "synthetic": {"samples": case.samples, "testSamples": 10, "shape": case.shape, "classes": case.classes}}
        folder = self.folder / "tokens"
        folder.mkdir()
        length = case.model["gpt"]["contextLength"]
        for name, samples in ("train", case.samples), ("val", 10):
            (folder / f"{name}.txt").write_bytes(random.Random(TRAINING["seed"]).randbytes(samples * length + 1))
        return {"format": "tokens", "path": str(folder)}

    def manifest(self, training):
        training = {
            "model": self.case.model, "data": self.data(), "optimizer": self.case.optimizer, "precision": self.case.precision,
            "globalBatchSize": self.case.batch * self.ranks, "steps": 100_000_000, "seed": TRAINING["seed"], **training}
        container = {"name": "trainer", "image": "none"}
        if self.case.device == "cuda":
            container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
        return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "step"},
                "spec": {"worker": {"replicas": self.ranks, "template": {"spec": {"containers": [container]}}}, "training": training}}

    def steps(self):
        """As its supervisor exports it: ranks tell it ten times in a second."""
        log = self.folder / "run/step-worker-0.log"
        if self.port is None:
            found = re.search(r'"port":(\d+)', log.read_text()) if log.exists() else None
            if found is None:
                return 0
            self.port = int(found.group(1))
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
                found = re.search(r"^lockstep_train_steps_total\{.*\} (\S+)$", answer.read().decode(), re.MULTILINE)
        except OSError as error:
            raise SystemExit(f"{self.name}: {error}\n{self.output()}\n{log.read_text()[-3000:]}") from None
        return int(float(found.group(1))) if found else 0

    def check_device(self):
        log = (self.folder / "run/step-worker-0.log").read_text()
        if self.case.device == "cuda" and '"message":"training on a device"' not in log:
            raise SystemExit(f"{self.name} does not train on a GPU\n{log[:3000]}")

    def first_step(self):
        """When the first step was finished; None: not yet."""
        times = [json.loads(line)["time"] for path in self.ledger.iterdir() for line in path.read_text().splitlines()
                 if '"event":"commit"' in line]
        return min(times, default=None)


class Python(System):
    """DistributedDataParallel or fully_shard of the same release of PyTorch, started by torchrun or, with less, one by one."""

    root_program = rank_program = "python"

    def __init__(self, folder, case, ranks, variant="eager", torchrun=False):
        super().__init__(folder, case, ranks)
        self.name = "torchrun" if torchrun else variant
        self.may_be_killed = not torchrun
        self.progress = self.folder / "progress"
        settings = self.folder / "settings.json"
        settings.write_text(json.dumps({**TRAINING, **case._asdict(), "variant": variant, "progress": str(self.progress)}))
        python, script = torch_python.python_for_benches(), pathlib.Path(__file__).with_name("ddp.py")
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            port = str(any_port.getsockname()[1])
        self.started = time.time()  # the look for Python is not its matter
        if torchrun:
            self.start([python, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}", script, settings])
            return
        for rank in range(ranks):
            self.start([python, script, settings], MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(ranks))

    def steps(self):
        return int(self.progress.read_text() or 0) if self.progress.exists() else 0

    def first_step(self):
        return time.time() if self.steps() > 0 else None
