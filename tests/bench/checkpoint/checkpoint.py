#!/usr/bin/env python3
"""What a checkpoint costs: Lockstep beside torch.save and torch.distributed.checkpoint, the same model, batch, threads and release of PyTorch.

checkpoint.py [--programs FOLDER] [--turns N] [--only SIZE…] [--systems NAME…]    prints medians and ratios

small, large, huge   25, 493 and 2130 MB of state: an MLP's weights and momentum; 2 ranks over Gloo, a save every 50, 4 or 4 steps

  stall        how long the thread that trains is held by a save
  of memcpy    that, in copies of the whole state by one thread, measured in the same turn
  stored       from the begin of a save to all of it in the store
  steps/s      with saves, as a share of the same system's without
  restore      from the begin of reading to the state on both ranks, the files still in the page cache
  peak         most memory that one process held while it trained and saved

The systems take turns; each trains the same steps on the same machine and disk. Times of steps and saves come from the training itself.
"""
import argparse
import collections
import os
import pathlib
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

from saving import PYTHON, Peer, Saving, s3_place  # first: it finds bench/step and tests/support
import torch_python  # noqa: E402
from systems import Case  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEADLINE = 900


class Size(NamedTuple):
    case: Case  # with the first of its numbers of ranks
    every: int  # steps between saves
    saves: int  # that are measured


def mlp(*hidden_sizes):
    return Case({"name": "mlp", "mlp": {"hiddenSizes": hidden_sizes}}, 32)


SIZES = {"small": Size(mlp(2048, 768), 50, 3), "large": Size(mlp(7040, 8000), 4, 5), "huge": Size(mlp(15920, 15920), 4, 2)}
SYSTEMS = ["lockstep", "lockstep s3", *PYTHON]


class Measured(NamedTuple):
    rate: float = 0  # steps per second
    stalls: list = []  # seconds
    stored: list = []
    restore: float = 0
    memcpy: float = 0
    peak: int = 0  # bytes


def finish(system):
    """The most memory that one of its processes held."""
    end = time.monotonic() + DEADLINE
    peak = 0
    for process in system.processes:
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                raise SystemExit(f"{system.name}: not within {DEADLINE} s\n{system.output()}")
            time.sleep(0.2)
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        peak = max(peak, ended[2].ru_maxrss * 1024)  # of those that it waited for, too
    if any(process.returncode != 0 for process in system.processes):
        raise SystemExit(f"{system.name} failed\n{system.output()}")
    return peak


def rate(system, size):
    """From the step before the first save until all saves have had `every` steps."""
    times = system.commits()
    first, last = size.every - 1, size.every * (1 + size.saves) - 1
    return (last - first) / (times[last] - times[first])


def turn(make, size):
    """One training and the way back from what it stored; `make(folder, steps)` starts them."""
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
        steps = size.every * (1 + size.saves) + 1
        with start(make, f"{folder}/train", steps) as system:
            peak = finish(system)
            system.check_device()
            # Without the one at the end, which nothing trains beside.
            saves = [save for save in system.saves() if save["step"] < steps]
            measured = Measured(rate(system, size), [save["stall_seconds"] for save in saves], [save["seconds"] for save in saves],
                                memcpy=system.memcpy(), peak=peak)
            if not saves or not system.restores_in_another_run:
                return measured._replace(restore=system.restored() if saves else 0)
        with start(make, f"{folder}/restore", steps + 1) as system:
            finish(system)
            return measured._replace(restore=system.restored())


def start(make, folder, steps):
    os.mkdir(folder)
    return make(pathlib.Path(folder), steps)


class Bench:
    def __init__(self, options, s3_uri):
        self.options, self.s3_uri = options, s3_uri
        self.turns = 0

    def maker(self, name, size, saves):
        self.turns += 1
        with_saves = size.every if saves else 0
        if name not in PYTHON:
            uri = f"{self.s3_uri}/{self.turns}" if name == "lockstep s3" else None
            return lambda folder, steps: Saving(folder, size.case, self.options.programs, steps, with_saves,
                                                uri or f"file://{folder.parent}/stored")
        return lambda folder, steps: Peer(folder, size.case, name if saves else "none", steps, with_saves, folder.parent / "stored")

    def compare(self, size_name, size):
        results = collections.defaultdict(list)
        for _ in range(self.options.turns):
            for name in ["lockstep", "async_save"]:
                results[name, "none"].append(turn(self.maker(name, size, saves=False), size))
            for name in self.options.systems:
                results[name, "saves"].append(turn(self.maker(name, size, saves=True), size))
        memcpy = statistics.median(m.memcpy for m in results["async_save", "none"])
        print(f"{size_name}: a copy of the state by one thread {memcpy:.3f} s")
        for name in self.options.systems:
            quiet = results["async_save" if name in PYTHON else "lockstep", "none"]
            show(f"{size_name} {name}", results[name, "saves"], statistics.median(m.rate for m in quiet), memcpy, size)


def show(title, turns, quiet_rate, memcpy, size):
    stalls = [stall for m in turns for stall in m.stalls]
    stored = [seconds for m in turns for seconds in m.stored]
    with_saves = statistics.median(m.rate for m in turns)
    stall = statistics.median(stalls)
    print(f"{title:18} stall {stall:.3f} s ({spread(stalls)}), {stall / memcpy:.2f} of memcpy, {stall * quiet_rate:.1%} of a step; "
          f"stored {statistics.median(stored):.2f} s ({spread(stored)}); a save every {size.every} steps: {with_saves:.2f} steps/s, "
          f"{with_saves / quiet_rate:.1%} of {quiet_rate:.2f}; restore {statistics.median(m.restore for m in turns):.2f} s; "
          f"peak {max(m.peak for m in turns) / 1e6:.0f} MB; {len(stalls)} saves", flush=True)


def spread(values):
    return f"{min(values):.3g} to {max(values):.3g}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", default=ROOT / "build/release/bin", help="folder of lockstep and lockstep-rank")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=["small", "large"], choices=list(SIZES))
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    options = parser.parse_args()
    torch_python.python_for_benches()
    print(f"{os.cpu_count()} processors, load before {os.getloadavg()[0]:.1f}", flush=True)
    with s3_place("lockstep s3" in options.systems) as uri:
        bench = Bench(options, uri)
        for name in options.only:
            bench.compare(name, SIZES[name])


if __name__ == "__main__":
    sys.exit(main())
