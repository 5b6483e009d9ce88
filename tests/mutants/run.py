#!/usr/bin/env python3
"""Would the unit tests notice a fault? Makes random mutants of the pure cores, one at a time, and runs the tests that belong to each.

run.py [--count N] [--seed N] [--skip N] [--jobs N] [--only PART…] [--limit SECONDS]

Prints what survives as a diff, and at the end how many were killed. Works in a temporary copy; what it has compiled of the unchanged tree is
kept in build/mutants. Exits with 1 if a mutant survived.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import mutate

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "mutants"

# What is mutated, and the tests that should notice. What else a program of them needs is found by its headers: for a/b.h, a/b.cc, and these.
FURTHER = {"runtime/launch/supervisor/supervision.h": ["runtime/launch/supervisor/supervision_rounds.cc"],
           "runtime/common/rendezvous/round.h": ["runtime/common/rendezvous/round_formation.cc"]}
RENDEZVOUS, RECONCILE = "tests/unit/runtime/common/rendezvous", "tests/unit/operator/reconcile"
SUPERVISION = [f"tests/unit/runtime/launch/supervisor/supervision{of}_test.cc" for of in ("", "_of_programs", "_of_slow_ranks", "_without_host")]
ROUND = [f"{RENDEZVOUS}/round{of}_test.cc" for of in ("", "_finish", "_standby", "_property")]
BELONGING = {
    "runtime/common/rendezvous/round.cc": ROUND,
    "runtime/common/rendezvous/round_formation.cc": ROUND,
    "runtime/launch/supervisor/supervision.cc": SUPERVISION,
    "runtime/launch/supervisor/supervision_rounds.cc": SUPERVISION,
    "operator/reconcile/plan.cc": [f"{RECONCILE}/{of}_test.cc" for of in (
        "plan", "failure_policy", "force_delete", "gang", "goodput", "gpus", "launcher", "notes", "owned_objects", "kueue", "rollout", "status",
        "waiting")],
    "operator/reconcile/failure_policy.cc": [f"{RECONCILE}/{of}_test.cc" for of in ("failure_policy", "plan")],
    "operator/reconcile/goodput.cc": [f"{RECONCILE}/goodput_test.cc"],
    "runtime/data/sampler.cc": ["tests/unit/runtime/data/sampler_test.cc"],
    "runtime/train/step/batch_math.cc": ["tests/unit/runtime/train/step/batch_math_test.cc"],
    "runtime/checkpoint/manifest.cc": ["tests/unit/runtime/checkpoint/manifest_test.cc"],
}
PRECOMPILED = "tests/pch/tests.h"
COMPILE = ["g++", "-std=c++20", "-O0", "-w", "-pthread", "-D_GLIBCXX_ASSERTIONS", '-DLOCKSTEP_VERSION="0"']
LIBRARIES = ["-lgmock", "-lgtest", "-lgtest_main", "-lrapidcheck", "-lspdlog", "-lfmt", "-lcrypto", "-lz", "-pthread"]


class CannotRun(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Outcome:
    path: str
    mutant: mutate.Mutant
    verdict: str  # killed, killed by time, survived or not compiled
    seconds: float


class Tree:
    """A copy of the sources, in which the checkout may change meanwhile, and the objects made of it."""

    def __init__(self, folder):
        self.folder = folder
        for path in sorted(path for top in ("operator", "runtime", "tests") for path in (ROOT / top).rglob("*") if path.suffix in {".cc", ".h"}):
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        KEPT.mkdir(parents=True, exist_ok=True)
        header = KEPT / self.key([PRECOMPILED])
        self.compile = [*COMPILE, "-I", str(folder), "-include", str(header / "tests.h")]
        if not (header / "tests.h.gch").exists():
            header.mkdir(exist_ok=True)
            shutil.copyfile(folder / PRECOMPILED, header / "tests.h")
            made(subprocess.run([*COMPILE, "-x", "c++-header", header / "tests.h", "-o", header / "gch"], capture_output=True, text=True))
            (header / "gch").rename(header / "tests.h.gch")

    def text(self, path):
        return (self.folder / path).read_text()

    def includes(self, path):
        return [name for name in re.findall(r'^#include "([^"]+)"', self.text(path), re.MULTILINE) if (self.folder / name).exists()]

    def reached(self, paths, following):
        """Those and all that they lead to."""
        found, ahead = set(), list(paths)
        while ahead:
            path = ahead.pop()
            if path not in found:
                found.add(path)
                ahead += following(path)
        return sorted(found)

    def sources(self, tests):
        """Of a program: its tests, and what defines the contents of the headers that they and it include."""
        def following(path):
            beside = path[:-2] + ".cc"
            return self.includes(path) + ([beside] if path.endswith(".h") and (self.folder / beside).exists() else []) + FURTHER.get(path, [])
        return [path for path in self.reached(tests, following) if path.endswith(".cc")]

    def key(self, paths):
        text = "".join(f"{path}\n{self.text(path)}" for path in self.reached([*paths, PRECOMPILED], self.includes))
        return hashlib.sha256(f"{COMPILE} {text}".encode()).hexdigest()[:24]

    def object_of(self, path):
        kept = KEPT / f"{pathlib.Path(path).stem}-{self.key([path])}.o"
        if not kept.exists():
            new = self.folder / f"{kept.name}.new"
            made(subprocess.run([*self.compile, "-c", self.folder / path, "-o", new], capture_output=True, text=True))
            shutil.move(new, kept)
        return kept


def made(done):
    if done.returncode != 0:
        raise CannotRun(f"This does not compile without a mutant; it needs the packages of .ci/install: {' '.join(map(str, done.args))}\n{done.stderr}")


def linked(objects, program):
    return subprocess.run(["g++", "-o", program, *objects, *LIBRARIES], capture_output=True, text=True)


def verdict_of(program, limit):
    """The same worlds for all mutants: what survives, survives again. The limit is one of processor time, so that a busy machine kills nothing."""
    try:
        done = subprocess.run(["prlimit", f"--cpu={limit}", "--", program, "--gtest_brief=1", "--gtest_fail_fast"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=30 * limit, cwd=program.parent, env={**os.environ, "RC_PARAMS": "seed=1"})
    except subprocess.TimeoutExpired:
        return "killed by time"
    return {0: "survived", -signal.SIGXCPU: "killed by time", -signal.SIGKILL: "killed by time"}.get(done.returncode, "killed")


def judge(tree, path, mutant, others, limit):
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=tree.folder) as folder:
        source, mutated, program = (pathlib.Path(folder, name) for name in (pathlib.Path(path).name, "mutated.o", "tests"))
        source.write_text(mutant.of(tree.text(path)))
        compiled = subprocess.run([*tree.compile, "-c", source, "-o", mutated], capture_output=True)
        verdict = "not compiled"
        if compiled.returncode == 0 and linked([mutated, *others], program).returncode == 0:
            verdict = verdict_of(program, limit)
    return Outcome(path, mutant, verdict, time.monotonic() - start)


def prepare(tree, paths, jobs, limit):
    """{path: the objects that its tests are linked with}; says so where the tests fail without any mutant."""
    programs = {path: tree.sources(BELONGING[path]) for path in paths}
    sources = sorted({source for needed in programs.values() for source in needed})
    print(f"Compiling {len(sources)} files, or taking them from build/mutants", flush=True)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        objects = dict(zip(sources, pool.map(tree.object_of, sources)))
    for path, needed in programs.items():
        program = tree.folder / "unchanged"
        made(linked([objects[source] for source in needed], program))
        start = time.monotonic()
        if verdict_of(program, limit) != "survived":
            raise CannotRun(f"The tests of {path} fail without a mutant, or take more than {limit} s of processor time: {' '.join(BELONGING[path])}")
        print(f"  {path}: {len(needed)} files, tests pass in {time.monotonic() - start:.1f} s", flush=True)
    return {path: [objects[source] for source in needed if source != path] for path, needed in programs.items()}


def report(outcomes, tree, seed, tried):
    for outcome in outcomes:
        if outcome.verdict == "survived":
            print(f"\nSurvived: {outcome.mutant.kind}\n{outcome.mutant.diff(tree.text(outcome.path), outcome.path)}", end="")
    counted = [outcome for outcome in outcomes if outcome.verdict != "not compiled"]
    by_path = collections.Counter((outcome.path, outcome.verdict != "survived") for outcome in counted)
    print()
    for path in sorted({path for path, _ in by_path}):
        print(f"{path}: {by_path[path, True]} of {by_path[path, True] + by_path[path, False]} killed")
    killed = sum(outcome.verdict != "survived" for outcome in counted)
    by_time = sum(outcome.verdict == "killed by time" for outcome in counted)
    print(f"{killed} of {len(counted)} killed, {by_time} of them by time; {len(outcomes) - len(counted)} that did not compile are not counted; "
          f"seed {seed}, continued by --skip {tried}", flush=True)
    return killed == len(counted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="mutants that compile")
    parser.add_argument("--seed", type=int, default=random.randrange(10 ** 6), help="draws the same mutants again")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the seed's mutants: to continue a run")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once")
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="only of files whose path contains one of these")
    parser.add_argument("--limit", type=int, default=10, help="seconds of processor time for the tests of one mutant")
    options = parser.parse_args()
    paths = [path for path in BELONGING if any(part in path for part in options.only)]
    if not paths:
        parser.error(f"--only {' '.join(options.only)} names none of {' '.join(BELONGING)}")
    print(f"Seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-mutants-") as folder:
        tree = Tree(pathlib.Path(folder))
        ahead = [(path, mutant) for path in paths for mutant in mutate.mutants(tree.text(path))]
        random.Random(options.seed).shuffle(ahead)
        others = prepare(tree, paths, options.jobs, options.limit)
        outcomes, counted, tried = [], 0, options.skip
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            while counted < options.count and tried < len(ahead):
                batch = ahead[tried:tried + min(options.jobs, options.count - counted)]
                tried += len(batch)
                for outcome in pool.map(lambda entry: judge(tree, *entry, others[entry[0]], options.limit), batch):
                    line = tree.text(outcome.path).count("\n", 0, outcome.mutant.begin) + 1
                    print(f"{outcome.verdict:14} {outcome.seconds:5.1f} s  {outcome.mutant.kind:10} {outcome.path}:{line}", flush=True)
                    outcomes.append(outcome)
                    counted += outcome.verdict != "not compiled"
        return 0 if report(outcomes, tree, options.seed, tried) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotRun as problem:
        sys.exit(str(problem))
