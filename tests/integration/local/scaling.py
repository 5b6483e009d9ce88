"""`lockstep scaling` with real ranks: it measures each size and keeps nothing, also where a size fails and where it is interrupted."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess

import ledger
import processes
from build_folder import BIN
from cases import ENDS_WITH_US, LIMIT, expect, until
from local_run import manifest


@contextlib.contextmanager
def scaling(folder, job, *arguments):
    """The process, whose folder of temporary files must be empty at the end, and the folder of the job unchanged."""
    temporary, steps = pathlib.Path(folder, "temporary"), pathlib.Path(folder, "ledger")
    temporary.mkdir()
    steps.mkdir()
    before = sorted(pathlib.Path(folder).iterdir())
    with subprocess.Popen([*ENDS_WITH_US, f"{BIN}/lockstep", "scaling", str(job), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, cwd=folder, env={**os.environ, "TMPDIR": str(temporary), "LOCKSTEP_SAMPLE_LEDGER": str(steps)}) as process:
        try:
            yield process
        finally:
            process.kill()
    processes.expect_end("TMPDIR", temporary)
    expect(not list(temporary.iterdir()), f"left behind: {list(temporary.rglob('*'))}")
    expect(sorted(pathlib.Path(folder).iterdir()) == before, f"written: {sorted(pathlib.Path(folder).iterdir())}")


def finish(process, code):
    output, progress = process.communicate(timeout=LIMIT)
    expect(process.returncode == code, f"exit code {process.returncode}\n{output}{progress}")
    return output, progress.splitlines()


def test_measures_each_size_and_keeps_nothing(folder):
    # An interval of one step: the job would store a checkpoint at once.
    job = manifest(folder, sections={"checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": 1}}, epochs=1)
    with scaling(folder, job, "--replicas", "2,1", "--steps", "10", "-o", "json") as process:
        output, progress = finish(process, 0)
    shown = json.loads(output)
    expect([size["worldSize"] for size in shown["sizes"]] == [1, 2], output)
    for size in shown["sizes"]:
        expect(size["steps"] >= 10 and size["samplesPerSecond"] > 0, output)
    expect(shown["sizes"][0]["efficiency"] == 1 and shown["recommendedWorldSize"] in (1, 2) and shown["processors"] >= 1, output)
    expect([line.rpartition(": ")[0] for line in progress] == ["measuring 1 rank", "measuring 2 ranks"], progress)
    expect(all(line.endswith(" samples/s") for line in progress), progress)


def ranks(folder):
    return [pid for pid in processes.with_variable("TMPDIR", f"{folder}/temporary") if processes.command(pid).endswith("lockstep-rank")]


def test_keeps_what_was_measured_where_a_size_fails(folder):
    with scaling(folder, manifest(folder), "--replicas", "1,2", "--steps", "10") as process:
        until("steps of two ranks", lambda: len(ledger.newest_round(f"{folder}/ledger")[1]) == 2, poll=0.02, details=lambda: f"exit code {process.poll()}")
        os.kill(ranks(folder)[0], signal.SIGKILL)
        output, progress = finish(process, 1)
    expect(progress[1].startswith("measuring 2 ranks: failed: ") and "signal 9" in progress[1], progress)
    lines = output.splitlines()
    expect(lines[0].split()[:2] == ["RANKS", "SAMPLES/S"] and lines[1].split()[0] == "1", output)
    expect("only one size was measured" in lines[3] and lines[4].startswith("These ranks shared the "), output)


def test_ends_cleanly_where_it_is_interrupted(folder):
    with scaling(folder, manifest(folder), "--replicas", "1,2", "--steps", "1000000") as process:
        until("a rank", lambda: ranks(folder), poll=0.02, details=lambda: f"exit code {process.poll()}")
        process.send_signal(signal.SIGINT)
        output, progress = finish(process, 143)
    expect(progress == ["measuring 1 rank: interrupted"], progress)
    expect(output.startswith("Not measured"), output)
