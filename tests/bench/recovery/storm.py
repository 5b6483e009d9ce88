#!/usr/bin/env python3
"""A failure every 15 seconds: how many steps a training still finishes, and which samples it loses or counts twice.

storm.py [--programs FOLDER] [--seconds N] [--every N] [--only NAME…]    prints a table and ratios

The trainings are those of recovery.py. From full strength on, a random rank is killed with SIGKILL at fixed times, whatever the others do; the same
seed gives each system the same ranks. A supervisor starts the process again at once: Lockstep's, torchrun's agent, and for torchft the bench.
Everything is taken from the lines of the ranks: which samples each has put into the sum of a step, and which steps it has finished.
  steps          finished from the first kill's interval on to the end, those that were undone and done again once
  again          steps that were finished twice, because a checkpoint was older
  next step      kill -> first step of a later membership; full strength: kill -> a step of all 3 ranks in one; of the kills at full strength
  lost           samples of epochs that have been read to their end which no step that counts has
  twice          uses of a sample in an epoch after its first
  apart          by how many epochs the first and the last reader have moved apart, where each rank reads a part of its own
  smaller        steps that had fewer samples than the global batch
"""
import argparse
import collections
import dataclasses
import math
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

from records import Records, settle
from systems import RANKS, SYSTEMS, TRAINING, prepare
import ledger  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
SETTLED = 30  # steps at full strength before the time begins


@dataclasses.dataclass
class Samples:
    lost: int
    twice: int
    apart: int  # epochs
    smaller: int


def account(records, last, size, global_batch):
    """What became of the samples of the steps up to `last`, in the history that counts: of each step its newest round that a rank has finished."""
    counts_for = {}
    for r in records:
        if r["event"] == "commit":
            counts_for[r["step"]] = max(r["round"], counts_for.get(r["step"], 0))
    used = collections.defaultdict(lambda: bytearray(size))  # epoch -> uses of each sample
    readers = collections.Counter()  # -> the epoch that they have come to
    batches = collections.Counter()
    for r in records:
        if r["event"] != "contribute" or r["step"] > last:
            continue
        reader, epoch = (r["rank"], r["epoch"]) if "epoch" in r else ("all ranks", r["step"] * global_batch // size)
        readers[reader] = max(readers[reader], epoch)
        if r["round"] == counts_for.get(r["step"]):
            batches[r["step"]] += len(r["ids"])
            for i in r["ids"]:
                used[epoch][i] += 1
    read = min(readers.values())
    return Samples(lost=sum(used[epoch].count(0) for epoch in range(read)),
                   twice=sum(sum(uses) - size + uses.count(0) for uses in used.values()),
                   apart=max(readers.values()) - read, smaller=sum(batches[step] < global_batch for step in range(last + 1)))


def recoveries(commits, kills, end):
    """(seconds to the next step, to full strength) of each kill at full strength; None for what did not come before the next kill."""
    found = []
    for killed, until in zip(kills, [*kills[1:], end]):
        before = max(r["round"] for r in commits if r["time"] <= killed)
        members = {r["rank"] for r in commits if r["round"] == before and r["time"] <= killed}
        later = [r for r in commits if r["round"] > before and killed < r["time"] <= until]
        firsts = collections.defaultdict(dict)
        for r in later:
            firsts[r["round"]].setdefault(r["rank"], r["time"])
        if len(members) == RANKS:
            full = min((max(ranks.values()) for ranks in firsts.values() if len(ranks) == RANKS), default=None)
            found.append((later[0]["time"] - killed if later else None, full and full - killed))
    return found


def storm(make, options):
    """The lines of all ranks, the times of the kills, and when the time began and ended."""
    dice = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        with make(folder, options.programs) as system:
            settle(system, Records(system.ledger, RANKS), 0, SETTLED)
            begin, kills = time.time(), []
            for n in range(1, math.ceil(options.seconds / options.every)):
                sleep_until(begin + n * options.every)
                victim, ranks = dice.randrange(RANKS), system.ranks()
                if ranks:
                    kills.append(time.time())
                    os.kill(ranks[victim % len(ranks)], signal.SIGKILL)
            sleep_until(begin + options.seconds)
            end = time.time()
        return ledger.read(system.ledger), kills, begin, end


def sleep_until(moment):
    time.sleep(max(0, moment - time.time()))


def figures(records, kills, begin, end):
    commits = sorted((r for r in records if r["event"] == "commit" and r["time"] <= end), key=lambda r: r["time"])
    last = max(r["step"] for r in commits)
    first = max(r["step"] for r in commits if r["time"] <= begin) + 1
    before, after = (dataclasses.astuple(account(records, step, TRAINING["samples"], TRAINING["global_batch"])) for step in (first - 1, last))
    samples = Samples(*(b - a for a, b in zip(before, after)))  # at the start replicas of torchft begin without the others
    rounds = collections.defaultdict(set)
    for r in commits:
        rounds[r["step"]].add(r["round"])
    recovered = recoveries(commits, kills, end)
    next_step, full = ([x[i] for x in recovered if x[i] is not None] for i in range(2))
    return {"steps": last + 1 - first, "steps/s": f"{(last + 1 - first) / (end - begin):.1f}", "again": sum(len(of) - 1 for of in rounds.values()),
            "kills": f"{len(kills)}, {len(recovered)} full", "next step": spread(next_step, 3), "full strength": spread(full, 2),
            "lost": samples.lost, "twice": samples.twice, "apart": samples.apart, "smaller": samples.smaller}


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} s, {max(values):.{digits}f}, {len(values)}" if values else "none"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", default=ROOT / "build/release/bin", help="folder of lockstep and lockstep-rank")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--every", type=float, default=15)
    parser.add_argument("--seed", type=int, default=1, help="of the ranks that are killed")
    names = ["package", "torchft", "torchft-default", "agent", "lockstep"]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=f"of: {', '.join(names)}")
    options = parser.parse_args()
    prepare(options.only)
    print(f"{os.cpu_count()} processors, load before {os.getloadavg()[0]:.1f}, seed {options.seed}, {options.seconds:.0f} s with a kill every {options.every:.0f} s; "
          "next step and full strength: median, longest, number", flush=True)
    table = {}
    for name in options.only:
        table[name] = figures(*storm(SYSTEMS[name], options))
        print(f"{name}: " + ", ".join(f"{title} {value}" for title, value in table[name].items()) + f"; load after it {os.getloadavg()[0]:.1f}", flush=True)
    titles = list(table[options.only[0]])
    print("\n| | " + " | ".join(titles) + " |\n|" + "---|" * (len(titles) + 1))
    for name, row in table.items():
        print(f"| {name} | " + " | ".join(str(row[title]) for title in titles) + " |")
    for name in options.only[1:]:
        print(f"{options.only[0]} / {name}, steps: {table[options.only[0]]['steps'] / table[name]['steps']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
