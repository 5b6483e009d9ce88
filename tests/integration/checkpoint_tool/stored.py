"""What the cases share: trained checkpoints, `lockstep checkpoint`, and the reader that others have for what it exports."""
import functools
import json
import os
import pathlib
import subprocess
import tempfile

import checkpoints
from build_folder import BIN
from cases import LIMIT, expect
from local_run import BATCH, SAMPLES, manifest

STEPS = [80, 120, 126]
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)


def train(folder, uri, strategy="ddp", environment=None):
    """Stores a checkpoint of each of STEPS: every run goes on from the one before and ends with a save, which nothing replaces."""
    for steps in STEPS:
        train_until(steps, folder, uri, strategy, environment)


def train_until(steps, folder, uri, strategy, environment):
    path = manifest(folder, replicas=2, minimum=2, strategy=strategy, epochs=None, steps=steps, evaluation=None,
                    optimizer={"name": "adamw", "learningRate": 0.002, "weightAverage": {"decay": 0.9}}, sections={"checkpoint": {"uri": uri, "intervalSteps": 1000}})
    run = subprocess.run([f"{BIN}/lockstep", "run", path, "--folder", f"{folder}/run", "--checkpoint-uri", uri],
                         env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    expect(run.returncode == 0, f"exit code {run.returncode}\n{run.stdout[-4000:]}")


@functools.cache
def trained(strategy="ddp"):
    """The folder of the checkpoints of a run of two ranks. Cases work on copies of it."""
    folder = tempfile.TemporaryDirectory(prefix="lockstep-trained-")
    trained.folders.append(folder)  # until the end
    train(folder.name, f"file://{folder.name}/stored", strategy)
    return pathlib.Path(folder.name, "stored")


trained.folders = []


class Tool:
    """`lockstep checkpoint …`, ended."""

    def __init__(self, *arguments, environment=None, code=0):
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen([f"{BIN}/lockstep", "checkpoint", *map(str, arguments)], stdout=out, stderr=err,
                                       env={**os.environ, **(environment or {})})
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            err.seek(0)
            self.out, self.err = out.read(), err.read()
        self.most_memory = usage.ru_maxrss * 1024
        expect(process.returncode == code, f"{arguments}: exit code {process.returncode}, not {code}\n{self.out}{self.err}")


def refusal(*arguments, code, says, environment=None):
    """One clear message, and nothing else."""
    tool = Tool(*arguments, code=code, environment=environment)
    lines = tool.err.splitlines()
    expect(len(lines) == 1 and lines[0].startswith("lockstep checkpoint: ") and says in lines[0] and not tool.out,
           f"{arguments}: not one line with {says!r}:\n{tool.out}{tool.err}")


def stored_manifest(checkpoint):
    return json.loads((checkpoint / "manifest.json").read_text())


def shards(checkpoint):
    return [checkpoint / shard["name"] for shard in stored_manifest(checkpoint)["shards"]]


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # of the last tensor
    path.write_bytes(content)


def expect_the_tensors_of(checkpoint, file, wanted=lambda name: True):
    """`file` is what safetensors reads from the shards, tensor by tensor."""
    import safetensors.numpy  # numpy's functions, not PyTorch's
    expected = {}
    for shard in shards(checkpoint):
        expected |= {name: array for name, array in safetensors.numpy.load_file(shard).items() if wanted(name)}
    found = safetensors.numpy.load_file(file)
    expect(found.keys() == expected.keys(), f"other tensors: {sorted(found.keys() ^ expected.keys())}")
    expect(len(found) > 3, f"few tensors: {sorted(found)}")
    for name, array in expected.items():
        expect((found[name].dtype, found[name].shape, found[name].tobytes()) == (array.dtype, array.shape, array.tobytes()), f"{name} differs")
    with safetensors.safe_open(file, framework="numpy") as opened:
        return opened.metadata()


def newest(folder):
    return checkpoints.newest(folder)[1]
