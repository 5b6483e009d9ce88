"""The same training in Python: PyTorch of the same release goes on from an early checkpoint of `lockstep run`, on the same samples,
and must come to the weights of each later one. Models, optimizers, schedules, accumulation and autocast, each at least once.
"""
import json
import pathlib
import subprocess

import torch_python
from cases import LIMIT, expect
from local_run import Run, manifest

IMAGES = {"format": "idx", "path": "/usr/share/datasets/fashion-mnist"}

GPT = {"name": "gpt", "gpt": {"layers": 2, "heads": 4, "embeddingSize": 64, "contextLength": 64, "vocabularySize": 256}}


def compare(folder, bound, steps=30, replicas=1, **training):
    """`bound`: the largest distance of the weights, relative to their length. The reference has as many ranks."""
    training = {"data": IMAGES, "globalBatchSize": 32, "epochs": None, "steps": steps, "evaluation": None, **training}

    def train(checkpoints=None, **other):
        sections = {"checkpoint": {"uri": f"file://{folder}/checkpoints", "keepLast": steps, **(checkpoints or {})}}
        path = manifest(folder, replicas=replicas, sections=sections, **{**training, **other})
        with Run(folder, path, {"OMP_NUM_THREADS": "1"}) as run:  # as the reference: more would add in another order
            expect(run.finish(200) == 0, run.output()[-2000:])
        return run.ledger

    # A newer checkpoint replaces one that is not yet written, so that of the first step is certain only where training ends.
    train(steps=1, schedule=None)
    samples = train({"intervalSteps": 1})
    spec = pathlib.Path(folder, "training.json")
    spec.write_text(json.dumps({key: value for key, value in training.items() if value is not None}))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", f"--nproc-per-node={replicas}"] if replicas > 1 else []
    done = subprocess.run([torch_python.python(), *launcher, pathlib.Path(__file__).with_name("reference.py"), spec,
                           f"{folder}/checkpoints", samples], capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == 0, done.stdout + done.stderr)
    *_, last = [json.loads(line) for line in done.stdout.splitlines()]
    print(f"     steps {last['from']} to {last['to']}, {last['compared']} checkpoints: weights differ by {last['worst']:.1e} at most")
    expect(last["from"] == 1 and last["to"] == steps, f"{last}")
    expect(last["worst"] <= bound, f"weights differ by {last['worst']}: {last}")


def test_mlp_with_sgd_and_a_step_schedule(folder):
    compare(folder, 1e-5, model={"name": "mlp", "mlp": {"hiddenSizes": [64]}},
            optimizer={"name": "sgd", "learningRate": 0.05, "momentum": 0.9, "nesterov": True, "weightDecay": 0.01},
            schedule={"name": "step", "warmupSteps": 4, "decayEverySteps": 10, "decayFactor": 0.5})


def test_cnn_with_adam_polynomial_accumulation_and_clipping(folder):
    compare(folder, 1e-5, model={"name": "cnn", "cnn": {"channels": [8, 16], "hiddenSize": 32, "dropout": 0}},
            optimizer={"name": "adam", "learningRate": 0.002, "weightDecay": 0.01, "clipNorm": 0.5}, microBatchSize=8,
            schedule={"name": "polynomial", "power": 2, "minLearningRate": 0.0001})


def test_mlp_with_an_average_of_the_weights(folder):
    compare(folder, 1e-5, model={"name": "mlp", "mlp": {"hiddenSizes": [64]}},
            optimizer={"name": "adamw", "learningRate": 0.002, "weightDecay": 0.01, "weightAverage": {"decay": 0.9}})


def test_resnet_with_sgd(folder):
    # Norms over small batches double a difference with each step: few steps tell a fault from rounding.
    compare(folder, 1e-6, steps=4, model={"name": "resnet18", "resnet": {"smallImages": True}}, globalBatchSize=16,
            optimizer={"name": "sgd", "learningRate": 0.01, "momentum": 0.9})


def test_resnet50_with_its_large_stem(folder):
    compare(folder, 1e-5, steps=3, model={"name": "resnet50"}, globalBatchSize=8,
            optimizer={"name": "sgd", "learningRate": 0.001, "momentum": 0.9})


def text_in(folder):
    text = pathlib.Path("/usr/share/common-licenses/GPL-3").read_bytes()
    for name, part in (("train.txt", text[:-4000]), ("val.txt", text[-4000:])):
        pathlib.Path(folder, name).write_bytes(part)
    return {"format": "tokens", "path": folder}


def test_gpt_with_adamw_and_a_cosine(folder):
    compare(folder, 1e-4, model=GPT, data=text_in(folder), globalBatchSize=8,
            optimizer={"name": "adamw", "learningRate": 0.003, "beta2": 0.99, "weightDecay": 0.1, "clipNorm": 1},
            schedule={"name": "cosine", "warmupSteps": 5, "minLearningRate": 0.0003})


def test_cnn_with_lamb_and_warm_up(folder):
    compare(folder, 1e-5, model={"name": "cnn", "cnn": {"channels": [8, 16], "hiddenSize": 32, "dropout": 0}},
            optimizer={"name": "lamb", "learningRate": 0.01, "beta2": 0.99, "weightDecay": 0.1}, schedule={"name": "polynomial", "warmupSteps": 5})


# Muon makes the small singular values of a matrix several hundred times larger, and rounding with them: few steps tell a fault from it.
def test_cnn_with_muon_for_its_linear_layers(folder):
    compare(folder, 5e-4, steps=4, model={"name": "cnn", "cnn": {"channels": [8, 16], "hiddenSize": 32, "dropout": 0}},
            optimizer={"name": "muon", "learningRate": 0.002, "momentum": 0.9, "weightDecay": 5})


def test_gpt_with_muon_and_a_cosine(folder):
    compare(folder, 5e-4, steps=4, model=GPT, data=text_in(folder), globalBatchSize=8,
            optimizer={"name": "muon", "learningRate": 0.003, "momentum": 0.95, "nesterov": True, "beta2": 0.99, "weightDecay": 0.1, "clipNorm": 1,
                       "groups": [{"match": ["wte.*", "wpe.*"], "useMuon": False}]},
            schedule={"name": "cosine", "warmupSteps": 1, "minLearningRate": 0.0003})


def test_fsdp_against_fully_shard(folder):
    compare(folder, 1e-5, steps=50, replicas=2, strategy="fsdp", model=GPT, data=text_in(folder), globalBatchSize=8,
            optimizer={"name": "sgd", "learningRate": 0.05, "momentum": 0.9, "clipNorm": 1})


def test_mlp_in_bfloat16(folder):
    compare(folder, 1e-4, model={"name": "mlp", "mlp": {"hiddenSizes": [64]}}, precision="bf16",
            optimizer={"name": "adamw", "learningRate": 0.001})


def test_module_of_python_with_norms(folder):
    path = pathlib.Path(folder, "norm-cnn.pt")
    subprocess.run([torch_python.python(), pathlib.Path(__file__).with_name("scripted.py"), path], check=True, timeout=LIMIT)
    compare(folder, 1e-5, steps=8, model={"name": "torchscript", "torchscript": {"path": str(path)}},
            optimizer={"name": "sgd", "learningRate": 0.02, "momentum": 0.9})
