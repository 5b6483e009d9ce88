#!/usr/bin/env python3
"""What a step costs: Lockstep compared with DistributedDataParallel and fully_shard in Python, the same model, batch, threads and release of PyTorch.

step.py [--programs FOLDER] [--turns N] [--seconds S] [--only NAME…] [--against VARIANT…]    prints medians and ratios

tiny, small, medium   steps per second and CPU seconds per step of 2 ranks over Gloo; samples per CPU second of 2 ranks
                      against those of 1 with the same batch for each rank. Two trainings with 1 rank run at the same time
                      for that, so that their ranks share the caches and the memory as well
sharded               a GPT of 14 million parameters with AdamW, divided over 2 ranks: strategy fsdp against fully_shard, and the peak memory of a rank
start                 process start -> first finished step, 2 ranks

The systems take turns. In each a training is started, left until it runs evenly, and then measured over some seconds, from one report
of its steps to another: how many steps, and the processor time of its ranks. What `lockstep run` and the supervisors take in addition does not
grow with the steps; it is given as a share of a processor. Where others use the machine, only the CPU seconds can be compared.
The variants of DDP: eager (as it comes), tuned (gradients as views of the buckets, static graph, fused optimizer, channels last),
compile (torch.compile around eager). The same on a GPU: bench/gpu.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

from systems import Case, Lockstep, Python  # first: it finds tests/support
import torch_python  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEADLINE = 240  # compiling takes most of it
POLL_SECONDS = 0.004
SETTLE_SECONDS = 1.0
VARIANTS = ["eager", "tuned", "compile"]

CNN = {"name": "cnn", "cnn": {"channels": [32, 64], "hiddenSize": 256, "dropout": 0}}
CASES = {"tiny": Case({"name": "mlp", "mlp": {"hiddenSizes": [64]}}, 1),
         "small": Case(CNN, 8),
         "medium": Case(CNN, 64)}
GPT = {"name": "gpt", "gpt": {"layers": 8, "heads": 8, "embeddingSize": 384, "contextLength": 64, "vocabularySize": 256, "dropout": 0}}
SHARDED = Case(GPT, 2, ranks=(2,), samples=1024,
               optimizer={"name": "adamw", "learningRate": 1e-4, "weightDecay": 0.1})
SHARDED_OURS = {"fsdp": {"strategy": "fsdp"}, "fsdp, 2 copies": {"strategy": "fsdp", "fsdp": {"copies": 2}}}


class Measured(NamedTuple):
    steps_per_second: float
    cpu_per_step: float
    others: float  # processors that other processes than the ranks use
    peak_bytes: int  # of the rank that used most memory


def wait(system, what, condition, poll=POLL_SECONDS):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        system.check()
        if (result := condition()) is not None:
            return result
        time.sleep(poll)
    raise SystemExit(f"{system.name}: not within {DEADLINE} s: {what}\n{system.output()}")


def next_report(system):
    """(steps, time, CPU seconds) at the next report of the training."""
    before = system.steps()

    def reported():
        steps = system.steps()
        return (steps, time.monotonic(), system.cpu_seconds()) if steps > before else None
    return wait(system, "a report of finished steps", reported)


def measure(system, seconds):
    wait(system, "the first step", lambda: system.steps() or None, poll=0.1)
    time.sleep(SETTLE_SECONDS)
    before, begin, cpu = next_report(system)
    time.sleep(seconds)
    after, end, more_cpu = next_report(system)
    ranks, others = (more - less for more, less in zip(more_cpu, cpu))
    return Measured((after - before) / (end - begin), ranks / (after - before), others / (end - begin), system.peak_bytes())


class Bench:
    def __init__(self, options, ours=None, meaning=lambda case, steps_per_second: "", against=None):
        """`ours`: our variants, each with what its spec.training has in addition to its case's; `meaning`: what else to say of a rate;
        `against`: the other systems; without it those of the options."""
        self.options, self.ours, self.meaning = options, ours or {"lockstep": {}}, meaning
        self.against = options.against if against is None else against
        self.failed = []

    def open(self, name, folder, case, ranks):
        if name in self.ours:
            return Lockstep(folder, case, ranks, self.options.programs, **self.ours[name])
        return Python(folder, case, ranks, name)

    def turn(self, name, case, ranks):
        with contextlib.ExitStack() as at_once:
            systems = [at_once.enter_context(self.open(name, at_once.enter_context(tempfile.TemporaryDirectory(prefix="step-")), case, ranks))
                       for _ in range(case.ranks[0] // ranks)]
            for system in systems[1:]:
                wait(system, "the first step", lambda system=system: system.steps() or None, poll=0.1)
            measured = measure(systems[0], self.options.seconds)
            systems[0].check_device()
            return measured

    def compare(self, case_name, case):
        results = collections.defaultdict(list)
        for _ in range(self.options.turns):
            for name in [*self.ours, *self.against]:
                for ranks in case.ranks if name in ("lockstep", "eager") else case.ranks[:1]:
                    try:
                        measured = self.turn(name, case, ranks)
                        results[name, ranks].append(measured)
                    except SystemExit as failure:  # the others go on: time on a GPU is short
                        self.failed.append(f"{case_name} {name}")
                        print(f"{case_name} {name}: {failure}", flush=True)
        self.show(case_name, case, results)

    def show(self, case_name, case, results):
        most = case.ranks[0]
        ours = {name: medians(results[name, most]) for name in self.ours if (name, most) in results}
        for name, our in ours.items():
            print(f"{case_name:8} {name:14} other processes than the ranks: {our.others:.1%} of a processor", flush=True)
        for (name, ranks), all_of_them in results.items():
            rate, cpu, _, peak = medians(all_of_them)
            text = f"{case_name:8} {name:14} {ranks} ranks  {rate:8.1f} steps/s ({spread(r.steps_per_second for r in all_of_them)})  " \
                   f"{1e3 * cpu:7.3f} CPU ms/step ({spread(1e3 * r.cpu_per_step for r in all_of_them)})  {peak / 2**20:.0f} MiB{self.meaning(case, rate)}"
            if ranks == most and name not in ours:
                text += "".join(f"  {our_name}: {our.steps_per_second / rate:.2f} times the steps/s, "
                                f"{cpu / our.cpu_per_step:.2f} times the steps per CPU second" for our_name, our in ours.items())
            if ranks < most and (name, most) in results:
                both = medians(results[name, most])
                text += f"  samples per CPU second of 2 ranks: {2 * cpu / both.cpu_per_step:.1%} of these"
            print(text, flush=True)

    def start(self, case):
        ranks = case.ranks[0]
        makers = {"lockstep": lambda folder: Lockstep(folder, case, ranks, self.options.programs, steps=3),
                  "plain Python": lambda folder: Python(folder, case, ranks),
                  "torchrun": lambda folder: Python(folder, case, ranks, torchrun=True)}
        results = collections.defaultdict(list)
        for _ in range(self.options.turns):
            for name in makers:
                with tempfile.TemporaryDirectory(prefix="step-") as folder, makers[name](folder) as system:
                    results[name].append(wait(system, "the first step", system.first_step) - system.started)
                    system.check_device()
        for name, seconds in results.items():
            print(f"start    {name:14} {statistics.median(seconds):.2f} s ({spread(seconds)})", flush=True)


def medians(all_of_them):
    return Measured(*(statistics.median(values) for values in zip(*all_of_them)))


def spread(values):
    values = list(values)
    return f"{min(values):.4g} to {max(values):.4g}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", default=ROOT / "build/release/bin", help="folder of lockstep and lockstep-rank")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4, help="of one measurement")
    parser.add_argument("--only", nargs="+", default=[*CASES, "sharded", "start"], choices=[*CASES, "sharded", "start"])
    parser.add_argument("--against", nargs="*", default=VARIANTS, choices=VARIANTS)
    options = parser.parse_args()
    torch_python.python_for_benches()
    print(f"{os.cpu_count()} processors, load before {os.getloadavg()[0]:.1f}", flush=True)
    bench = Bench(options)
    sharded = Bench(options, SHARDED_OURS, against=["fully_shard"])
    for name in options.only:
        if name == "start":
            bench.start(CASES["small"])
        elif name == "sharded":
            sharded.compare(name, SHARDED)
        else:
            bench.compare(name, CASES[name])
    failed = bench.failed + sharded.failed
    return f"failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
