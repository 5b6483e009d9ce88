"""Jobs on a GPU, each a `lockstep run` of one rank: built-in models by strategy, scripts that join by the Python package, a script that does not.

On the machine of README.md: python3 -m pytest -p no:cacheprovider tests/gpu/jobs.py, faster with -n 4 of pytest-xdist. On others, nothing here is tested.
"""
import importlib.util
import json
import os
import pathlib
import random
import re
import signal
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
os.environ["LOCKSTEP_BUILD_DIR"] = str(ROOT / "build/gpu-libraries")
os.environ["LOCKSTEP_RANK_PROGRAM"] = str(ROOT / "build/gpu-core/bin/lockstep-rank")
os.environ["LOCKSTEP_TORCH_PYTHON"] = sys.executable
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests/bench/step")]

import ledger  # noqa: E402
from cases import expect  # noqa: E402
from local_run import Run, logged  # noqa: E402
from package_run import ENVIRONMENT, ScriptRun, expect_exactly_once, final, slowly, until_steps  # noqa: E402
from program_run import metric, metrics  # noqa: E402
from systems import SGD, TRAINING  # noqa: E402

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or not __import__("torch").cuda.is_available(), reason="NOT TESTED, there is no GPU")

SCRIPTS = ROOT / "tests/integration/python_package"
BATCH, STEPS, LENGTH = 16, 60, 64
GPT = {"layers": 2, "heads": 2, "embeddingSize": 64, "contextLength": LENGTH, "vocabularySize": 256}
IMAGES = {"format": "synthetic", "synthetic": {"samples": 512, "testSamples": 64, "shape": [3, 64, 64], "classes": 10}}
ADAMW = {"name": "adamw", "learningRate": 0.003, "weightDecay": 0.1, "clipNorm": 1}
JOBS = {
    "ddp": {},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "checkpointing": {"precision": "bf16", "gradientCheckpointing": True},
    "accumulation": {"precision": "bf16", "microBatchSize": 4},
    "graph": {"precision": "bf16", "cudaGraph": True},
    "zero1": {"strategy": "zero1", "precision": "bf16"},
    "localsgd": {"strategy": "localsgd"},
    "fsdp": {"strategy": "fsdp"},
    "fsdp-bf16": {"strategy": "fsdp", "precision": "bf16", "gradientCheckpointing": True},
    "fsdp-host": {"strategy": "fsdp", "precision": "bf16", "fsdp": {"cpuOffload": True}},
}
MODEL = {"name": "gpt", "gpt": GPT}


def text(folder):
    """Something to learn: words of which each is followed by one of two."""
    dice = random.Random(1)
    words, state = [bytes(dice.choices(range(97, 123), k=5)) for _ in range(40)], 0
    for name, size in ("train", 200_000), ("val", 5_000):
        written = bytearray()
        while len(written) < size:
            written += words[state] + b" "
            state = (state * 2 + dice.randrange(2)) % 40
        pathlib.Path(folder, f"{name}.txt").write_bytes(written)
    return {"format": "tokens", "path": str(folder)}


def manifest(folder, container, spec):
    container = {"name": "trainer", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}, **container}
    path = pathlib.Path(folder, "job.json")
    path.write_text(json.dumps({
        "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "gpu"},
        "spec": {"worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}, **spec}}))
    return path


def job(folder, steps=STEPS, **training):
    training = {"data": text(folder), "optimizer": ADAMW, "globalBatchSize": BATCH, "steps": steps, "seed": 7, "evaluation": {"everyEpochs": 1}, **training}
    training = {name: value for name, value in training.items() if value is not None}
    return manifest(folder, {}, {"training": training, "checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSteps": 20}})


def expect_on_the_gpu(folder):
    expect(logged(folder, "training on a device"), "the rank trains on the CPU")


def expect_success(run, folder):
    code = run.finish()
    logs = "".join(path.read_text()[-3000:] for path in pathlib.Path(folder, "run").glob("*.log"))
    expect(code == 0, f"exit code {code}\n{run.output()[-2000:]}\n{logs}")
    expect_on_the_gpu(folder)


@pytest.mark.parametrize("name", JOBS)
def test_learns(folder, name):
    with Run(folder, job(folder, model=MODEL, **JOBS[name])) as run:
        expect_success(run, folder)
    expect(ledger.newest_commit(run.ledger) == STEPS - 1, f"step {ledger.newest_commit(run.ledger)} was the last one")
    losses = [float(loss) for loss in re.findall(r"^step \d+/\d+ .* loss ([\d.]+) ", run.output(), re.MULTILINE)]
    expect(len(losses) > 1 and losses[-1] < 0.9 * losses[0], f"the losses were {losses}")


@pytest.mark.parametrize("name", ["ddp", "bf16", "graph", "fsdp-bf16"])
def test_learns_images(folder, name):
    with Run(folder, job(folder, model={"name": "resnet18"}, data=IMAGES, optimizer=SGD, **{**JOBS[name], "gradientCheckpointing": None})) as run:
        expect_success(run, folder)


@pytest.mark.parametrize("name", ["bf16", "graph", "fsdp-host"])
def test_a_killed_rank_continues_from_its_checkpoint(folder, name):
    with Run(folder, job(folder, steps=100_000, model=MODEL, **JOBS[name])) as run:
        run.until("a checkpoint", lambda: logged(folder, "checkpoint stored"))
        before = ledger.newest_round(run.ledger)[0]
        os.kill(run.ranks()[0], signal.SIGKILL)
        run.until_joined(1, after=before)
        expect_on_the_gpu(folder)
        entered = logged(folder, "rank entered the round")
        expect(entered[-1]["state_from"] == "checkpoint" and entered[-1]["step"] > 0, f"the rank entered with {entered[-1]}")


def test_exports_what_the_driver_reports(folder):
    with Run(folder, job(folder, steps=10_000_000, model={"name": "gpt", "gpt": {**GPT, "layers": 6, "embeddingSize": 512, "heads": 8}}, precision="bf16")) as run:
        run.until("the utilization of the GPU", lambda: metric(folder, "lockstep_gpu_utilization_ratio"))
        found = metrics(folder)
        print(*(f"{series} {value}" for series, value in found.items() if "gpu" in series or "mfu" in series), sep="\n")
        for name, least in {"memory_used_bytes": 1e9, "memory_total_bytes": 1e10, "power_watts": 50, "temperature_celsius": 15, "ecc_errors_total": 0}.items():
            value = metric(folder, f"lockstep_gpu_{name}")
            expect(value is not None and value >= least, f"lockstep_gpu_{name} is {value}")
        run.until("the utilization of the model", lambda: metric(folder, "lockstep_mfu_ratio"))


def test_a_script_joins_over_nccl(folder):
    with ScriptRun(folder, SCRIPTS / "train.py", 2, "saves", ranks=1) as run:
        with slowly(folder):
            pathlib.Path(folder, "saves").touch()
            number = until_steps(run, more=20, ranks=1)
            os.kill(run.programs()[0], signal.SIGKILL)
            until_steps(run, after=number, ranks=1)
        expect_exactly_once(run, 2017, 32, 2)
    entered = logged(folder, "rank entered the round")
    expect(entered[-1]["state_from"] == "checkpoint", f"the rank entered with {entered[-1]}")
    expect(final(folder, 0)["steps"] == 128, "not all steps were made")


@pytest.mark.parametrize("script", ["with_trainer.py", "with_lightning.py"])
def test_a_framework_joins_over_nccl(folder, script):
    with ScriptRun(folder, SCRIPTS / script, 2, ranks=1, environment={**ENVIRONMENT, "HF_HUB_OFFLINE": "1"}) as run:
        expect_exactly_once(run, 401, 16, 2)


def test_steps_of_an_unchanged_script_are_counted(folder):
    """bench/step's, which trains with DistributedDataParallel over NCCL and waits for nothing."""
    settings = pathlib.Path(folder, "settings.json")
    settings.write_text(json.dumps({
        **TRAINING, "model": MODEL, "batch": BATCH, "device": "cuda", "ranks": [1], "optimizer": ADAMW, "precision": "bf16", "samples": 256,
        "shape": [LENGTH], "classes": 256, "variant": "eager", "progress": f"{folder}/progress"}))
    command = [sys.executable, str(ROOT / "tests/bench/step/ddp.py"), str(settings)]
    with Run(folder, manifest(folder, {"command": command}, {"nprocPerNode": 1})) as run:
        run.until("100 steps", lambda: (metric(folder, "lockstep_train_steps_total") or 0) >= 100)
        found = metrics(folder)
        print(*(f"{series} {value}" for series, value in found.items() if "phase_seconds" in series), sep="\n")
        expect(any("lockstep_gpu_memory_used_bytes" in series for series in found), "nothing is reported of its GPU")
