#!/usr/bin/env python3
"""What a training comes to, beside what others come to with the same model.

quality.py [--build FOLDER] [cnn] [gpt]
  cnn   Fashion-MNIST, a CNN of two convolutions, 2 ranks: test accuracy; 0.92 and more is published for such networks
        (https://github.com/zalandoresearch/fashion-mnist, "2 Conv+pooling": 0.916 to 0.925)
  gpt   the King James Bible byte by byte, a GPT of 0.8 million parameters: loss on the last tenth, beside PyTorch in Python with
        the same configuration; `apt-get install bible-kjv` has the text
About three minutes for each training on two processors.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
import torch_python  # noqa: E402

GPT = {"model": {"name": "gpt", "gpt": {"layers": 4, "heads": 4, "embeddingSize": 128, "contextLength": 128, "vocabularySize": 256,
                                        "dropout": 0}},
       "optimizer": {"name": "adamw", "learningRate": 0.002, "beta2": 0.99, "weightDecay": 0.1, "clipNorm": 1},
       "schedule": {"name": "cosine", "warmupSteps": 50, "minLearningRate": 0.0002},
       "globalBatchSize": 32, "steps": 600, "seed": 1}
CNN = {"model": {"name": "cnn", "cnn": {"channels": [32, 64], "hiddenSize": 128, "dropout": 0.4}},
       "data": {"format": "idx", "path": "/usr/share/datasets/fashion-mnist", "augmentation": {"horizontalFlip": True}},
       "optimizer": {"name": "adamw", "learningRate": 0.002, "weightDecay": 0.02},
       "schedule": {"name": "cosine", "warmupSteps": 200},
       "globalBatchSize": 128, "epochs": 12, "seed": 1, "evaluation": {"everyEpochs": 1}}


def train(build, folder, training, replicas=2):
    """The last evaluation of `lockstep run`."""
    job = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "quality"}, "spec": {
        "worker": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "trainer", "image": "none"}]}}},
        "training": training, "checkpoint": {"uri": f"file://{folder}/checkpoints", "resume": "Never"}}}
    manifest = pathlib.Path(folder, "job.json")
    manifest.write_text(json.dumps(job))
    subprocess.run([build / "bin/lockstep", "run", manifest, "--folder", f"{folder}/run"], check=True)
    (history,) = pathlib.Path(folder, "checkpoints").rglob("history.jsonl")
    records = [json.loads(line) for line in history.read_text().splitlines()]
    return [record for record in records if record["kind"] == "evaluation"][-1]


def cnn(build, folder):
    result = train(build, folder, CNN)
    print(f"cnn: test accuracy {result['accuracy']:.4f} after {result['step']} steps (published: 0.916 to 0.925)")


def gpt(build, folder):
    try:
        text = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], check=True, capture_output=True).stdout
    except FileNotFoundError:
        sys.exit("quality.py: gpt needs the text of Debian's bible-kjv: apt-get install bible-kjv")
    begin = len(text) * 9 // 10
    pathlib.Path(folder, "train.txt").write_bytes(text[:begin])
    pathlib.Path(folder, "val.txt").write_bytes(text[begin:])
    training = {**GPT, "data": {"format": "tokens", "path": folder}, "evaluation": {"everyEpochs": 100, "batchSize": 64}}
    ours = train(build, folder, training)["loss"]
    pathlib.Path(folder, "training.json").write_text(json.dumps(training))
    done = subprocess.run([torch_python.python_for_benches(), pathlib.Path(__file__).with_name("train.py"), f"{folder}/training.json"],
                          check=True, stdout=subprocess.PIPE, text=True)
    theirs = json.loads(done.stdout)["loss"]
    print(f"gpt: loss {ours:.4f}, PyTorch {theirs:.4f}: {(ours / theirs - 1) * 100:+.1f} %")


CASES = {"cnn": cnn, "gpt": gpt}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("cases", nargs="*", metavar="|".join(CASES))
    arguments = parser.parse_args()
    for unknown in set(arguments.cases) - set(CASES):
        parser.error(f"{unknown}: the cases are {', '.join(CASES)}")
    for case in arguments.cases or CASES:
        with tempfile.TemporaryDirectory(prefix="lockstep-quality-") as folder:
            CASES[case](arguments.build, folder)


main()
