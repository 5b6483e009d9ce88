"""The lines that the ranks of a training write, read while they train."""
import collections
import json
import pathlib
import time

DEADLINE = 240  # a busy machine imports PyTorch for a minute


class Records:
    """Finished steps, and how long the processes have imported."""

    def __init__(self, folder, world):
        self.folder = pathlib.Path(folder)
        self.world = world  # ranks at full strength
        self.offsets = collections.defaultdict(int)
        self.commits, self.imports = [], []

    def read(self):
        for path in self.folder.glob("*.jsonl"):
            with open(path, "rb") as file:
                file.seek(self.offsets[path])
                lines = file.read()
            whole = lines[:lines.rfind(b"\n") + 1]
            self.offsets[path] += len(whole)
            for line in whole.splitlines():
                if b'"event":"commit"' in line:
                    self.commits.append(json.loads(line))
                elif b'"event":"imported"' in line:
                    self.imports.append(json.loads(line))
        return self.commits

    def newest_round(self):
        return max((r["round"] for r in self.commits), default=0)

    def full_since(self, after):
        """When the first round above `after` had a finished step of each rank; None: not yet."""
        firsts = collections.defaultdict(dict)
        for r in self.commits:
            if r["round"] > after:
                firsts[r["round"]].setdefault(r["rank"], r["time"])
        return min((max(ranks.values()) for ranks in firsts.values() if len(ranks) == self.world), default=None)

    def import_seconds(self, after):
        """From the start of a process to the end of its imports, the longest of those that were started after that time; None: there was none."""
        return max((r["time"] - r["started"] for r in self.imports if r["started"] > after), default=None)


def wait(system, what, condition):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if (result := condition()) is not None:
            return result
        time.sleep(0.1)  # seldom: reading takes time from the ranks
    raise SystemExit(f"{system.name}: not within {DEADLINE} s: {what}\n{system.output()}")


def settle(system, records, after, steps):
    """Waits for full strength in a round above `after` and for more steps there; says since when it was full."""
    def settled():
        records.read()
        full = records.full_since(after)
        newest = records.newest_round()
        done = [r["step"] for r in records.commits if r["round"] == newest]
        return full if full is not None and len(system.ranks()) == system.world and max(done) - min(done) >= steps else None
    return wait(system, "full strength", settled)
