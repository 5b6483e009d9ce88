"""What the scripts of this folder train, and the lines that they write: those of the sample ledger (runtime/train/step/sample_ledger.h)."""
import json
import os
import pathlib
import sys
import time

import torch


def settings():
    torch.set_num_threads(1)
    found = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.manual_seed(found["seed"])
    return found


def data_of(settings):
    return torch.rand(settings["samples"], settings["features"]), torch.randint(settings["classes"], (settings["samples"],))


def model_of(settings):
    sizes = [settings["features"], *settings["hidden"], settings["classes"]]
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def optimizer_of(settings, model):
    return torch.optim.SGD(model.parameters(), lr=settings["learning_rate"], momentum=settings["momentum"])


def process_started():
    """When the kernel started this process, in seconds since 1970."""
    ticks = int(pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


class Lines:
    """The lines of this process. One write for each, so a killed process leaves whole lines."""

    def __init__(self, settings):
        self.file = os.open(f"{settings['ledger']}/script-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def imported(self):
        """To be called when model and optimizer are there: PyTorch imports 800 modules more for the first optimizer."""
        self.write({"event": "imported", "started": process_started(), "time": time.time()})

    def contribute(self, number, step, rank, ids, **more):
        self.write({"event": "contribute", "round": number, "rank": rank, "step": step, "ids": ids, **more})

    def commit(self, number, step, rank):
        self.write({"event": "commit", "round": number, "rank": rank, "step": step, "time": time.time()})

    def write(self, record):
        os.write(self.file, json.dumps(record, separators=(",", ":")).encode() + b"\n")
