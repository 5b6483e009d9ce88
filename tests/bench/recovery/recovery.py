#!/usr/bin/env python3
"""How long training stands still when a rank is killed with SIGKILL, and how long until it is replaced: Lockstep compared with torchrun and torchft,
with itself while the rendezvous or the store of the checkpoints is away and with the state divided over four ranks (fsdp), the unchanged script of torchrun as a job of Lockstep, and the same by the
Python package.

recovery.py [--programs FOLDER] [--turns N] [--kills N] [--only NAME…]    prints medians and ratios

3 ranks over Gloo on this machine train the same model on the same global batch with the same checkpoint interval. The systems take
turns; in each turn every rank in its order is killed, the next one when training runs again at full strength. All times are taken from the lines
that ranks write when they have finished a step:
  first step     start of the command -> each of 3 ranks has finished a step
  next step      kill -> the first step finished by a later membership
  full strength  kill -> each of 3 ranks has finished a step in one later membership
  imports        start of the new process -> its script has a model and an optimizer, so nothing is left to import; of several processes the
                 longest. Not of a process that was parked before the kill
  steps again    steps finished before the kill that a later membership had to do again
storm.py kills by the clock instead, and counts steps and samples.
"""
import argparse
import collections
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time
import typing

from records import Records, settle, wait
from systems import SYSTEMS, TRAINING, prepare

ROOT = pathlib.Path(__file__).resolve().parents[3]
SETTLED = 30  # steps at full strength before the next kill


class Kill(typing.NamedTuple):
    first_step: float  # of the turn
    next_step: float
    full: float
    again: int
    imports: typing.Optional[float]


def kill_one(system, records, victim, steps):
    """Kills a rank's process; a Kill without its first step."""
    wait(system, "ready for the next kill", lambda: system.is_ready() or None)
    records.read()
    before = records.newest_round()
    pid = system.ranks()[victim]
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    full = settle(system, records, before, steps)
    next_step = min((r for r in records.commits if r["round"] > before), key=lambda r: r["time"])
    finished = max(r["step"] for r in records.commits if r["round"] <= before)
    return next_step["time"] - killed, full - killed, finished + 1 - next_step["step"], records.import_seconds(killed)


def turn(make, programs, kills, dice):
    with tempfile.TemporaryDirectory(prefix="recovery-") as folder, make(folder, programs) as system:
        records = Records(system.ledger, system.world)
        first = settle(system, records, 0, SETTLED + dice.randrange(TRAINING["checkpoint_steps"])) - system.started
        system.take_away()
        return [Kill(first, *kill_one(system, records, i % system.world, SETTLED + dice.randrange(TRAINING["checkpoint_steps"])))
                for i in range(kills)]


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} s ({min(values):.{digits}f} to {max(values):.{digits}f})"


def show(name, kills):
    of = Kill(*zip(*kills))
    print(f"{name}: first step {spread(of.first_step, 2)}, next step {spread(of.next_step, 3)}, full strength {spread(of.full, 2)}, "
          f"steps again {statistics.median(of.again):.0f} ({min(of.again)} to {max(of.again)}), {len(kills)} kills", flush=True)
    imported = [kill for kill in kills if kill.imports is not None]
    if imported:
        print(f"    imports {spread([kill.imports for kill in imported], 2)}, full strength without them "
              f"{spread([kill.full - kill.imports for kill in imported], 2)}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", default=ROOT / "build/release/bin", help="folder of lockstep and lockstep-rank")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3, help="in each turn")
    parser.add_argument("--seed", type=int, default=1, help="of the steps at which ranks are killed")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME", help=f"of: {', '.join(SYSTEMS)}")
    options = parser.parse_args()
    names = options.only
    prepare(names)
    print(f"{os.cpu_count()} processors, load before {os.getloadavg()[0]:.1f}, seed {options.seed}", flush=True)
    dice = random.Random(options.seed)
    results = collections.defaultdict(list)
    for _ in range(options.turns):
        for name in names:
            results[name] += turn(SYSTEMS[name], options.programs, options.kills, dice)
            show(name, results[name])
    print("all turns:")
    for name in names:
        show(name, results[name])
    for ours in [name for name in ("lockstep", "package", "script") if name in names]:
        for name in names:
            if name != ours:
                first, following = (statistics.median(kill[i] for kill in results[name]) / statistics.median(kill[i] for kill in results[ours]) for i in range(2))
                print(f"{name} / {ours}, medians to the first step: {first:.2f}, to the next step: {following:.1f}")


if __name__ == "__main__":
    sys.exit(main())
