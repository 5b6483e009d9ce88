"""A GPT in Python, from weights of its own: prints the loss on val.txt as JSON.

train.py TRAINING_JSON
"""
import json
import math
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from torch_models import make_model  # noqa: E402


def sequences(path, length):
    tokens = torch.tensor(list(path.read_bytes()))
    count = (len(tokens) - 1) // length
    return tokens[:count * length].reshape(count, length), tokens[1:count * length + 1].reshape(count, length)


def initialise(model, layers):
    """As nanoGPT."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02)


def learning_rate(training, step):
    highest, schedule = training["optimizer"]["learningRate"], training["schedule"]
    warm, lowest = schedule["warmupSteps"], schedule["minLearningRate"]
    if step < warm:
        return highest * (step + 1) / warm
    done = (step - warm) / (training["steps"] - 1 - warm)
    return lowest + (highest - lowest) * (1 + math.cos(math.pi * done)) / 2


def loss_of(model, inputs, targets, reduction="mean"):
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), reduction=reduction)


def main(file):
    training = json.loads(pathlib.Path(file).read_text())
    folder, spec, rule = pathlib.Path(training["data"]["path"]), training["model"]["gpt"], training["optimizer"]
    torch.manual_seed(training["seed"])
    model = make_model(training["model"])
    initialise(model, spec["layers"])
    optimizer = torch.optim.AdamW(model.parameters(), rule["learningRate"], (0.9, rule["beta2"]), weight_decay=rule["weightDecay"])
    inputs, targets = sequences(folder / "train.txt", spec["contextLength"])
    order = iter(())
    for step in range(training["steps"]):
        batch = next(order, None)
        if batch is None or len(batch) < training["globalBatchSize"]:
            order = iter(torch.randperm(len(inputs)).split(training["globalBatchSize"]))
            batch = next(order)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training, step)
        optimizer.zero_grad()
        loss_of(model, inputs[batch], targets[batch]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), rule["clipNorm"])
        optimizer.step()
    model.eval()
    inputs, targets = sequences(folder / "val.txt", spec["contextLength"])
    with torch.no_grad():
        total = sum(loss_of(model, *pair, reduction="sum").item() for pair in zip(inputs.split(64), targets.split(64)))
    print(json.dumps({"loss": total / targets.numel()}))


main(sys.argv[1])
