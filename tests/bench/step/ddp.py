"""What step.py compares Lockstep with: DistributedDataParallel or fully_shard over Gloo or NCCL, with the models, data and batches of its cases.

ddp.py SETTINGS.json    trains until it is ended; rank 0 writes how many steps are done into settings["progress"]
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from torch_models import make_model  # noqa: E402

REPORT_SECONDS = 0.1  # as often as a rank of ours tells its supervisor


def model_of(settings):
    model, classes = settings["model"], settings["classes"]
    if model["name"] not in ("mlp", "cnn"):
        made = make_model(model, settings["shape"][0], classes)
        for embedding in (module for module in made.modules() if isinstance(module, nn.Embedding)):
            nn.init.normal_(embedding.weight, std=0.02)
        return made
    if model["name"] == "mlp":
        layers, size = [nn.Flatten()], 784
        for hidden in model["mlp"]["hiddenSizes"]:
            layers += [nn.Linear(size, hidden), nn.ReLU()]
            size = hidden
        return nn.Sequential(*layers, nn.Linear(size, classes))
    layers, channels, side = [], 1, 28
    for out in model["cnn"]["channels"]:
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        channels, side = out, side // 2
    hidden = model["cnn"]["hiddenSize"]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def parallel_of(model, variant):
    if variant == "fully_shard":
        for block in model.h:
            fully_shard(block)
        return fully_shard(model)
    if variant == "tuned":
        channels_last = model.to(memory_format=torch.channels_last)
        return DistributedDataParallel(channels_last, gradient_as_bucket_view=True, static_graph=True)
    parallel = DistributedDataParallel(model)
    return torch.compile(parallel) if variant == "compile" else parallel


def samples_of(settings):
    """(inputs, targets) of all samples."""
    samples = settings["samples"]
    if "gpt" not in settings["model"]:
        return torch.randn(samples, *settings["shape"]), torch.randint(settings["classes"], (samples,))
    spec = settings["model"]["gpt"]
    tokens = torch.randint(256, (samples, spec["contextLength"] + 1))  # bytes of a text
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def optimizer_of(parameters, settings):
    optimizer, fused = settings["optimizer"], settings["variant"] == "tuned" or None
    if optimizer["name"] == "adamw":
        return torch.optim.AdamW(parameters, lr=optimizer["learningRate"], weight_decay=optimizer["weightDecay"], fused=fused)
    return torch.optim.SGD(parameters, lr=optimizer["learningRate"], momentum=optimizer["momentum"], fused=fused)


class Training:
    """The model, the samples and the optimizer of a case, on its device; after init_process_group."""

    def __init__(self, settings):
        device = settings["device"]
        self.inputs, self.targets = (tensor.to(device) for tensor in samples_of(settings))
        self.model = model_of(settings).to(device)
        self.parallel = parallel_of(self.model, settings["variant"])
        self.optimizer = optimizer_of(self.model.parameters(), settings)
        self.autocast = torch.autocast(device, torch.bfloat16, enabled=settings["precision"] == "bf16")

    def step(self, chosen):
        self.optimizer.zero_grad()
        with self.autocast:
            outputs = self.parallel(self.inputs[chosen]).flatten(0, -2)
            loss = nn.functional.cross_entropy(outputs, self.targets[chosen].flatten())
        loss.backward()
        self.optimizer.step()


def begin(settings):
    """Before a Training."""
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    dist.init_process_group("nccl" if settings["device"] == "cuda" else "gloo")


def finish_queued(settings):
    """A GPU's work is only queued when a call returns."""
    if settings["device"] == "cuda":
        torch.cuda.synchronize()


class Progress:
    """One line, the number of finished steps, replaced in place; never half of a new one."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.written = 0.0

    def finished(self, steps):
        now = time.monotonic()
        if steps == 1 or now - self.written >= REPORT_SECONDS:
            self.written = now
            os.pwrite(self.file, b"%20d\n" % steps, 0)


def main():
    settings = json.load(open(sys.argv[1]))
    begin(settings)
    rank, world = dist.get_rank(), dist.get_world_size()
    samples, batch = settings["samples"], settings["batch"]  # of one rank
    training = Training(settings)
    progress = Progress(settings["progress"]) if rank == 0 else None
    order = torch.randperm(samples, device=settings["device"])
    steps_per_epoch = samples // (batch * world)
    step = 0
    while True:
        first = (step % steps_per_epoch * world + rank) * batch
        training.step(order[first:first + batch])
        step += 1
        if step == 1:
            finish_queued(settings)
        if progress:
            progress.finished(step)


if __name__ == "__main__":
    main()
