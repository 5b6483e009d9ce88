#!/usr/bin/env python3
"""How much of what the ranks exchange is hidden behind computation, read from traces that profiles have stored.

overlap.py TRACE.json…    for each step: milliseconds in which collectives ran, and in how much of them computation ran, too

On a GPU: the kernels of NCCL, on streams of their own, against all other kernels. Where there are none of NCCL's, Gloo's sums against the
kernels or, on the CPU, against the operators of the thread that trains. A collective lasts from its begin on this rank, so that waiting for
slower ranks is in it. Graphs of CUDA show their kernels as any others.
"""
import json
import pathlib
import sys
from typing import NamedTuple


class Step(NamedTuple):
    name: str
    collectives: list  # [(begin, end)] in microseconds, one for each, in the order of their begins
    computation: list  # merged


def interval(event):
    return event["ts"], event["ts"] + event["dur"]


def merged(intervals):
    """The same time without overlaps."""
    result = []
    for begin, end in sorted(intervals):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def within(intervals, begin, end):
    return [(max(begin, first), min(end, last)) for first, last in intervals if first < end and begin < last]


def milliseconds(intervals):
    return sum(end - begin for begin, end in merged(intervals)) / 1e3


def milliseconds_beside(collectives, computation):
    """How long any of both ran at once."""
    return milliseconds([part for begin, end in merged(collectives) for part in within(computation, begin, end)])


def is_kernel(event):
    return event.get("cat") == "kernel"


def parts(ranges):
    """(collectives, computation, what both are) of a trace: lists of events."""
    kernels = [event for event in ranges if is_kernel(event)]
    collectives = [event for event in kernels if event["name"].startswith("nccl")]
    if collectives:
        others = [event for event in kernels if not event["name"].startswith("nccl")]
        streams = [sorted({event["args"]["stream"] for event in events}) for events in (collectives, others)]
        return collectives, others, f"NCCL's kernels on streams {streams[0]}, others on {streams[1]}"
    collectives = [event for event in ranges if event["name"].startswith("gloo:")]
    if kernels:
        return collectives, kernels, "Gloo's sums beside kernels"
    threads = {event["tid"] for event in ranges if event["name"].startswith("ProfilerStep#")}
    operators = [event for event in ranges
                 if event.get("cat") == "cpu_op" and event["tid"] in threads and not event["name"].startswith("c10d::")]
    return collectives, operators, "Gloo's sums beside operators on the CPU"


def read(path):
    """(steps, what their parts are)"""
    ranges = [event for event in json.loads(pathlib.Path(path).read_text())["traceEvents"] if event.get("ph") == "X"]
    collectives, computation, words = parts(ranges)
    sums, computed = sorted(map(interval, collectives)), merged(map(interval, computation))
    marks = sorted((event for event in ranges if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"),
                   key=lambda event: event["ts"])
    return [Step(mark["name"], within(sums, *interval(mark)), within(computed, *interval(mark))) for mark in marks], words


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for path in sys.argv[1:]:
        steps, words = read(path)
        print(f"{path}: {words}")
        for step in steps:
            total, beside = milliseconds(step.collectives), milliseconds_beside(step.collectives, step.computation)
            share = f"beside computation in {beside:.3f} ms of them, {beside / total:.0%}" if total else "nothing to hide"
            print(f"{step.name}: collectives ran for {total:.3f} ms, {share}; computation for {milliseconds(step.computation):.3f} ms")


if __name__ == "__main__":
    main()
