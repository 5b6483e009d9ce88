#!/usr/bin/env python3
"""How long training stands still when a rank is killed with SIGKILL, and how long until it is replaced: Lockstep compared with torchrun,
with itself while the rendezvous or the store of the checkpoints is away, the unchanged script of torchrun as a job of Lockstep, and the same by the
Python package.

recovery.py [--programs FOLDER] [--turns N] [--kills N] [--only NAME…]    prints medians and ratios

3 ranks over Gloo on this machine train the same model on the same global batch with the same checkpoint interval. The systems take
turns; in each turn every rank in its order is killed, the next one when training runs again at full strength. All times are taken from the lines
that ranks write when they have finished a step:
  first step     start of the command -> each of 3 ranks has finished a step
  next step      kill -> the first step finished by a later membership
  full strength  kill -> each of 3 ranks has finished a step in one later membership
  steps again    steps finished before the kill that a later membership had to do again
"""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

from systems import RANKS, TRAINING, Lockstep, Package, Script, ScriptFromNothing, Torchrun, WithoutHost, WithoutStore  # first: it finds tests/support
import torch_python  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEADLINE = 120
SETTLED = 30  # steps at full strength before the next kill


class Commits:
    """The finished steps of a training, read as they are written."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.offsets = collections.defaultdict(int)
        self.records = []

    def read(self):
        for path in self.folder.glob("*.jsonl"):
            with open(path, "rb") as file:
                file.seek(self.offsets[path])
                lines = file.read()
            whole = lines[:lines.rfind(b"\n") + 1]
            self.offsets[path] += len(whole)
            self.records += [json.loads(line) for line in whole.splitlines() if b'"event":"commit"' in line]
        return self.records

    def newest_round(self):
        return max((r["round"] for r in self.records), default=0)

    def full_since(self, after):
        """When the first round above `after` had a finished step of each rank; None: not yet."""
        firsts = collections.defaultdict(dict)
        for r in self.records:
            if r["round"] > after:
                firsts[r["round"]].setdefault(r["rank"], r["time"])
        return min((max(ranks.values()) for ranks in firsts.values() if len(ranks) == RANKS), default=None)


def wait(system, what, condition):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if (result := condition()) is not None:
            return result
        time.sleep(0.1)  # seldom: reading takes time from the ranks
    raise SystemExit(f"{system.name}: not within {DEADLINE} s: {what}\n{system.output()}")


def settle(system, commits, after, steps):
    """Waits for full strength in a round above `after` and for more steps there; says since when it was full."""
    def settled():
        commits.read()
        full = commits.full_since(after)
        newest = commits.newest_round()
        done = [r["step"] for r in commits.records if r["round"] == newest]
        return full if full is not None and len(system.ranks()) == RANKS and max(done) - min(done) >= steps else None
    return wait(system, "full strength", settled)


def kill_one(system, commits, victim, steps):
    """Kills a rank's process; (seconds to the next step, to full strength, steps done again)."""
    wait(system, "ready for the next kill", lambda: system.is_ready() or None)
    commits.read()
    before = commits.newest_round()
    pid = system.ranks()[victim]
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    full = settle(system, commits, before, steps)
    next_step = min((r for r in commits.records if r["round"] > before), key=lambda r: r["time"])
    finished = max(r["step"] for r in commits.records if r["round"] <= before)
    return next_step["time"] - killed, full - killed, finished + 1 - next_step["step"]


def turn(make, kills, dice):
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder, make(folder) as system:
        commits = Commits(system.ledger)
        first = settle(system, commits, 0, SETTLED + dice.randrange(TRAINING["checkpoint_steps"])) - system.started
        system.take_away()
        return [(first, *kill_one(system, commits, i % RANKS, SETTLED + dice.randrange(TRAINING["checkpoint_steps"])))
                for i in range(kills)]


def show(name, results):
    first, next_step, full, again = zip(*results)
    print(f"{name}: first step {statistics.median(first):.2f} s ({min(first):.2f} to {max(first):.2f}), next step {statistics.median(next_step):.3f} s ({min(next_step):.3f} to {max(next_step):.3f}), "
          f"full strength {statistics.median(full):.2f} s ({min(full):.2f} to {max(full):.2f}), "
          f"steps again {statistics.median(again):.0f} ({min(again)} to {max(again)}), {len(results)} kills", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", default=ROOT / "build/release/bin", help="folder of lockstep and lockstep-rank")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3, help="in each turn")
    parser.add_argument("--seed", type=int, default=1, help="of the steps at which ranks are killed")
    parser.add_argument("--only", nargs="+", help="of: lockstep, no-host, no-store, package, script, script-from-nothing, agents, agent")
    options = parser.parse_args()
    systems = {"lockstep": lambda folder: Lockstep(folder, options.programs),
               "no-host": lambda folder: WithoutHost(folder, options.programs),
               "no-store": lambda folder: WithoutStore(folder, options.programs),
               "package": lambda folder: Package(folder, options.programs),
               "script": lambda folder: Script(folder, options.programs),
               "script-from-nothing": lambda folder: ScriptFromNothing(folder, options.programs),
               "agents": lambda folder: Torchrun(folder, agents=RANKS),
               "agent": lambda folder: Torchrun(folder, agents=1)}
    names = options.only or list(systems)
    if {"package", "script", "script-from-nothing", "agents", "agent"} & set(names):
        torch_python.python_for_benches()
    print(f"{os.cpu_count()} processors, load before {os.getloadavg()[0]:.1f}, seed {options.seed}", flush=True)
    dice = random.Random(options.seed)
    results = collections.defaultdict(list)
    for _ in range(options.turns):
        for name in names:
            results[name] += turn(systems[name], options.kills, dice)
            show(name, results[name])
    print("all turns:")
    for name in names:
        show(name, results[name])
    for ours in [name for name in ("lockstep", "package", "script") if name in names]:
        for name in names:
            if name != ours:
                first, following = (statistics.median(r[i] for r in results[name]) / statistics.median(r[i] for r in results[ours]) for i in range(2))
                print(f"{name} / {ours}, medians to the first step: {first:.2f}, to the next step: {following:.1f}")


if __name__ == "__main__":
    sys.exit(main())
