"""What step.py measures Lockstep beside: DistributedDataParallel over Gloo or NCCL with the models, data and batches of its cases.

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


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        by_head = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.inputs(self.attention_norm(x)).chunk(3, -1)]
        x = x + self.projection(nn.functional.scaled_dot_product_attention(*by_head, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norm(x))


class Gpt(nn.Module):
    """The layers of runtime/models/gpt.cc."""

    def __init__(self, spec):
        super().__init__()
        width = spec["embeddingSize"]
        self.tokens, self.positions = nn.Embedding(spec["vocabularySize"], width), nn.Embedding(spec["contextLength"], width)
        self.blocks = nn.Sequential(*(Block(spec["heads"], width) for _ in range(spec["layers"])))
        self.norm = nn.LayerNorm(width)
        for embedding in self.tokens, self.positions:
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return nn.functional.linear(self.norm(self.blocks(x)), self.tokens.weight)


def model_of(model, classes):
    if model["name"] == "gpt":
        return Gpt(model["gpt"])
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


def samples_of(settings):
    """(inputs, targets) of all samples."""
    samples = settings["samples"]
    if "gpt" not in settings["model"]:
        return torch.randn(samples, 1, 28, 28), torch.randint(settings["classes"], (samples,))
    spec = settings["model"]["gpt"]
    tokens = torch.randint(256, (samples, spec["contextLength"] + 1))  # bytes of a text
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def optimizer_of(parameters, settings):
    optimizer, fused = settings["optimizer"], settings["variant"] == "tuned" or None
    if optimizer["name"] == "adamw":
        return torch.optim.AdamW(parameters, lr=optimizer["learningRate"], weight_decay=optimizer["weightDecay"], fused=fused)
    return torch.optim.SGD(parameters, lr=optimizer["learningRate"], momentum=optimizer["momentum"], fused=fused)


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
    device = settings["device"]
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    samples, batch = settings["samples"], settings["batch"]  # of one rank
    inputs, targets = (tensor.to(device) for tensor in samples_of(settings))
    parallel = parallel_of(model_of(settings["model"], settings["classes"]).to(device), settings["variant"])
    optimizer = optimizer_of(parallel.parameters(), settings)
    autocast = torch.autocast(device, torch.bfloat16, enabled=settings["precision"] == "bf16")
    progress = Progress(settings["progress"]) if rank == 0 else None
    order = torch.randperm(samples, device=device)
    steps_per_epoch = samples // (batch * world)
    step = 0
    while True:
        begin = (step % steps_per_epoch * world + rank) * batch
        chosen = order[begin:begin + batch]
        optimizer.zero_grad()
        with autocast:
            loss = nn.functional.cross_entropy(parallel(inputs[chosen]).flatten(0, -2), targets[chosen].flatten())
        loss.backward()
        optimizer.step()
        step += 1
        if progress:
            progress.finished(step)


if __name__ == "__main__":
    main()
