"""What happens to ranks of a `lockstep run` that divide their state, and where the state of the others came from afterwards."""
import json
import os
import pathlib
import signal

from cases import expect

STEP = 60  # at which something happens


def logs(folder):
    return "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.log"))


def sources(folder):
    """Where ranks say that their state came from, after the first round."""
    lines = [json.loads(line) for line in logs(folder).splitlines() if "rank entered the round" in line]
    return {line["state_from"] for line in lines if line["round"] > 1}


def kill_a_rank(run, ranks=3):
    """The second of `ranks`, which are in pods of their own."""
    run.until_step(STEP)
    before = run.ranks()
    expect(len(before) == ranks, f"{ranks} rank processes expected, {len(before)} found")
    victim = before[1]
    os.kill(victim, signal.SIGKILL)
    run.until("the rank's return", lambda: len(run.ranks()) == ranks and victim not in run.ranks())
    expect(set(run.ranks()) >= set(before) - {victim}, "a survivor's process was replaced")


def end_a_pod(run, place, how, ranks):
    """`ranks`: those that the run has when the pod is there again."""
    run.until_step(STEP)
    victim = run.workers()[place]
    os.kill(victim, how)
    run.until("the pod's return", lambda: victim not in run.workers() and len(run.ranks()) == ranks)
