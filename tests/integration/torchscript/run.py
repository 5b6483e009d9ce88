"""A module that was saved as TorchScript trains in `lockstep run`: through the death of a rank, and on from its checkpoint; in bf16;
what does not fit is refused by field and file.
"""
import json
import os
import pathlib
import re
import signal
import subprocess

import checkpoints
from build_folder import BUILD
from cases import LIMIT, expect
from local_run import EPOCHS, Run, expect_complete, manifest

WRITE = BUILD / "tests/integration/torchscript/write_script_module"
NAMES = {"conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias", "fc1.weight", "fc1.bias",
         "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"}


def job(folder, replicas=2, path=None, **training):
    written = pathlib.Path(folder, "model.pt")
    if not written.exists():
        subprocess.run([WRITE, written], check=True, timeout=LIMIT)
    return manifest(folder, replicas=replicas, model={"name": "torchscript", "torchscript": {"path": path or str(written)}},
                    optimizer={"name": "sgd", "learningRate": 0.005, "momentum": 0.9}, **training)


def accuracy(run):
    return float(re.findall(r"test accuracy ([0-9.]+)", run.output())[-1])


def test_learns_through_a_killed_rank(folder):
    with Run(folder, job(folder, epochs=3 * EPOCHS)) as run:
        run.until_step(60)
        victim = run.ranks()[1]
        os.kill(victim, signal.SIGKILL)
        run.until("the rank's return", lambda: len(run.ranks()) == 2 and victim not in run.ranks())
        expect_complete(run, 3 * EPOCHS)
        expect(accuracy(run) > 0.8, f"accuracy {accuracy(run)}")
        print(f"     accuracy {accuracy(run)}")
    _, newest = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    shards = json.loads((newest / "manifest.json").read_text())["shards"]
    stored = {tensor["name"] for shard in shards for tensor in shard["tensors"]}
    expect(NAMES <= stored, f"the checkpoint has {sorted(stored)}")


def test_goes_on_from_its_checkpoint(folder):
    path = job(folder, epochs=3 * EPOCHS)
    with Run(folder, path) as run:
        run.until_step(50)
        run.process.send_signal(signal.SIGTERM)
        expect(run.finish() == 143, f"exit code {run.process.returncode}")
    with Run(folder, path) as run:
        expect(run.finish() == 0, run.output()[-4000:])
        logs = "".join(log.read_text() for log in pathlib.Path(folder, "run").glob("*.log"))
        expect("restored a checkpoint" in logs, "it began from nothing")


def test_trains_in_bfloat16(folder):
    with Run(folder, job(folder, precision="bf16")) as run:
        expect_complete(run)
        expect(accuracy(run) > 0.8, f"accuracy {accuracy(run)}")


def test_what_does_not_fit_is_refused_by_field(folder):
    pathlib.Path(folder, "text.pt").write_text("no archive")
    images = {"format": "synthetic", "synthetic": {"samples": 64, "testSamples": 8, "shape": [3, 28, 28], "classes": 10}}
    for field, words, training in (
            ("model.torchscript.path", "/nowhere.pt is not a readable file", {"path": "/nowhere.pt"}),
            ("model.torchscript.path", "text.pt is not a loadable TorchScript file", {"path": f"{folder}/text.pt"}),
            ("model.torchscript.path", "must be a path in the container", {"path": "s3://bucket/model.pt"}),
            ("model.torchscript.path", "does not take a batch of float32 [2, 3, 28, 28]", {"data": images}),
            ("determinism", "World cannot keep bn1.running_mean equal", {"determinism": "World"})):
        with Run(folder, job(folder, **training)) as run:
            code = run.finish()
            said = run.output()
        expect(code == 2 or code == 3, f"{words}: exit code {code}: {said[-1500:]}")
        expect(f"spec.training.{field}: " in said and words in said, f"{words} is not said: {said[-1500:]}")
        pathlib.Path(folder, "output.txt").write_text("")
