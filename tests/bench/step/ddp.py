"""What step.py measures Lockstep beside: DistributedDataParallel over Gloo with the models, data and batches of its cases.

ddp.py SETTINGS.json    trains until it is ended; rank 0 writes how many steps are done into settings["progress"]
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

REPORT_SECONDS = 0.1  # as often as a rank of ours tells its supervisor


def model_of(model, classes):
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
    if variant == "tuned":
        return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    parallel = DistributedDataParallel(model)
    return torch.compile(parallel) if variant == "compile" else parallel


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
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    samples, batch = settings["samples"], settings["batch"]  # of one rank
    inputs = torch.randn(samples, 1, 28, 28)
    targets = torch.randint(settings["classes"], (samples,))
    parallel = parallel_of(model_of(settings["model"], settings["classes"]), settings["variant"])
    optimizer = torch.optim.SGD(parallel.parameters(), lr=settings["learning_rate"], momentum=settings["momentum"],
                                fused=settings["variant"] == "tuned" or None)
    progress = Progress(settings["progress"]) if rank == 0 else None
    order = torch.randperm(samples)
    steps_per_epoch = samples // (batch * world)
    step = 0
    while True:
        begin = (step % steps_per_epoch * world + rank) * batch
        chosen = order[begin:begin + batch]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(inputs[chosen]), targets[chosen])
        loss.backward()
        optimizer.step()
        step += 1
        if progress:
            progress.finished(step)


if __name__ == "__main__":
    main()
