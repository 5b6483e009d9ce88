"""`lockstep run` with `strategy: dataparallel` and `modelparallel` on a machine without a GPU: one device, on which both log that and train as ddp with one rank."""
import json
import pathlib
import signal
import tempfile

import pytest

import checkpoints
import ledger
from cases import expect
from local_run import BATCH, LONGER, SAMPLES, Run, expect_complete, slow_manifest

ONE_DEVICE = " finds one device only: training on it as one process does"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # as bits are compared

with_both = pytest.mark.parametrize("strategy", ["dataparallel", "modelparallel"])


def job(folder, strategy="dataparallel", replicas=1, maximum=1, **sections):
    return slow_manifest(folder, replicas, strategy=strategy, epochs=LONGER,
                    sections={"elasticPolicy": {"minReplicas": 1, "maxReplicas": maximum}, **sections})


def logged(folder):
    return [json.loads(line) for path in pathlib.Path(folder, "run").glob("*.log")
            for line in path.read_text().splitlines() if line.startswith("{")]


def expect_the_bits_of_ddp(folder):
    with tempfile.TemporaryDirectory(prefix="lockstep-quiet-") as quiet:
        with Run(quiet, job(quiet, strategy="ddp"), ONE_THREAD) as run:
            expect_complete(run, LONGER)
        expect(not any(line["message"].endswith(ONE_DEVICE) for line in logged(quiet)), "ddp speaks of it, too")
        _, theirs = checkpoints.newest(pathlib.Path(quiet, "checkpoints"))
        step, ours = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
        expect(step == LONGER * -(-SAMPLES // BATCH), f"the newest checkpoint is of step {step}")
        expect(checkpoints.digest_of_tensors(ours) == checkpoints.digest_of_tensors(theirs), "other bits than those of ddp")


@with_both
def test_says_that_there_is_one_device_and_trains_as_ddp(folder, strategy):
    with Run(folder, job(folder, strategy), ONE_THREAD) as run:
        expect_complete(run, LONGER)
    said = [line for line in logged(folder) if line["message"] == strategy + ONE_DEVICE]
    expect([line["device"] for line in said] == ["cpu"], f"{said}")
    expect_the_bits_of_ddp(folder)


def test_goes_on_from_its_checkpoint(folder):
    path = job(folder)
    with Run(folder, path, ONE_THREAD) as run:
        run.until_step(50)
        run.process.send_signal(signal.SIGTERM)
        expect(run.finish() == 143, f"exit code {run.process.returncode}\n{run.output()[-4000:]}")
    stopped, _ = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    expect(stopped >= 50, f"the newest checkpoint is of step {stopped}")
    with Run(folder, path, ONE_THREAD) as run:
        expect(run.finish() == 0, run.output()[-4000:])
    sources = [line["state_from"] for line in logged(folder) if line["message"] == "rank entered the round"]
    expect("checkpoint" in sources, f"states came from {sources}")
    problems = ledger.check_exactly_once(run.ledger, SAMPLES, BATCH, LONGER)
    expect(not problems, "; ".join(problems))
    expect_the_bits_of_ddp(folder)


@with_both
def test_more_than_one_rank_is_refused(folder, strategy):
    cases = [("spec.worker.replicas", {"replicas": 2, "maximum": 2}, ()), ("spec.worker.replicas", {}, ("--replicas", "2")),
             ("spec.elasticPolicy.maxReplicas", {"maximum": 2}, ()), ("spec.nprocPerNode", {"nprocPerNode": 2}, ())]
    for field, changes, arguments in cases:
        with Run(folder, job(folder, strategy, **changes), arguments=arguments) as run:
            expect(run.finish() == 2, f"{field}: exit code {run.process.returncode}\n{run.output()[-4000:]}")
        last = run.output().splitlines()[-1]
        expect(f": {field}: must be " in last and last.endswith("for more ranks use ddp, pipeline or hybrid"), last)
