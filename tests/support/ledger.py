"""Reads the sample ledgers that ranks write (LOCKSTEP_SAMPLE_LEDGER) and checks the promise of exactly once.

Each rank appends, per step, {"event": "contribute", round, step, rank, ids} before the reduction and {"event": "commit",
round, step, rank, time} after the optimizer. The surviving history of a step is its newest round that was committed by anyone;
what that round's ranks contributed must be the step's samples.
"""
import collections
import contextlib
import functools
import json
import pathlib


class File:
    """One rank's records. Read on from where it was read to, because it is read often while a test waits for a step."""

    def __init__(self, path):
        self.path, self.offset, self.records = path, 0, []

    def read(self):
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            lines, end, _ = file.read().rpartition(b"\n")
        self.offset += len(lines) + len(end)
        for line in lines.splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a line that a kill has cut
                self.records.append(json.loads(line))
        return self.records


file_of = functools.cache(File)


def read(folder):
    """All complete lines of all ranks."""
    return [record for path in sorted(pathlib.Path(folder).glob("*.jsonl")) for record in file_of(path).read()]


def newest_commit(folder):
    """The highest committed step, -1 before the first."""
    return max((r["step"] for r in read(folder) if r["event"] == "commit"), default=-1)


def newest_round(folder):
    """(number, ranks that committed in it); (0, set()) before the first commit."""
    commits = [r for r in read(folder) if r["event"] == "commit"]
    newest = max((r["round"] for r in commits), default=0)
    return newest, {r["rank"] for r in commits if r["round"] == newest}


def history(folder):
    """step -> ids used, of the surviving history."""
    records = read(folder)
    final = {}
    for record in records:
        if record["event"] == "commit":
            final[record["step"]] = max(final.get(record["step"], 0), record["round"])
    used = collections.defaultdict(list)
    for record in records:
        if record["event"] == "contribute" and final.get(record["step"]) == record["round"]:
            used[record["step"]].extend(record["ids"])
    return used


def productive_seconds(folder):
    """Seconds between the commits of each round, without the steps that a later round repeated."""
    final, times = {}, collections.defaultdict(dict)  # times: round -> step -> time of the last rank's commit
    for r in read(folder):
        if r["event"] == "commit":
            final[r["step"]] = max(final.get(r["step"], 0), r["round"])
            times[r["round"]][r["step"]] = max(times[r["round"]].get(r["step"], 0), r["time"])
    seconds = 0.0
    for number, commits in times.items():
        steps = sorted(commits)
        seconds += sum(commits[b] - commits[a] for a, b in zip(steps, steps[1:]) if final[b] == number)
    return seconds


def check_exactly_once(folder, samples, global_batch, epochs):
    """Returns what is wrong, empty where each sample of each epoch was used exactly once."""
    used = history(folder)
    steps_per_epoch = -(-samples // global_batch)
    problems = []
    first = min(used, default=0)
    for epoch in range(epochs):
        steps = range(first + epoch * steps_per_epoch, first + (epoch + 1) * steps_per_epoch)
        missing = [s for s in steps if s not in used]
        if missing:
            problems.append(f"epoch {epoch}: no committed contribution for steps {missing[:5]}")
        ids = sorted(i for s in steps for i in used.get(s, []))
        if ids != list(range(samples)):
            counts = collections.Counter(ids)
            twice = [i for i, n in counts.items() if n > 1]
            never = [i for i in range(samples) if i not in counts]
            problems.append(f"epoch {epoch}: {len(ids)} uses of {samples} samples, "
                            f"{len(twice)} more than once (e.g. {twice[:3]}), {len(never)} never (e.g. {never[:3]})")
    if len(used) != epochs * steps_per_epoch:
        problems.append(f"{len(used)} steps were committed, {epochs * steps_per_epoch} expected")
    return problems
