"""What torchrun starts: DistributedDataParallel over Gloo on the model, data, batch and checkpoint interval of recovery.py.

ddp.py SETTINGS.json    trains until it is ended
"""
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import training


def save(path, step, model, optimizer):
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".partial")
    os.rename(path + ".partial", path)


def main():
    settings = training.settings()
    inputs, targets = training.data_of(settings)
    model = training.model_of(settings)
    optimizer = training.optimizer_of(settings, model)
    lines = training.Lines(settings)
    lines.imported()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    start = torch.tensor([time.time_ns()])
    dist.broadcast(start, 0)  # tells the lines of one membership from those of the one before
    step = 0
    if os.path.exists(settings["checkpoint"]):
        stored = torch.load(settings["checkpoint"])
        step = stored["step"]
        model.load_state_dict(stored["model"])
        optimizer.load_state_dict(stored["optimizer"])
    parallel = DistributedDataParallel(model)
    share = settings["global_batch"] // world
    while True:
        begin = (step * settings["global_batch"] + rank * share) % settings["samples"]  # a multiple of the share, as the number of samples is
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(inputs[begin:begin + share]), targets[begin:begin + share])
        lines.contribute(start.item(), step, rank, list(range(begin, begin + share)))
        loss.backward()
        optimizer.step()
        lines.commit(start.item(), step, rank)
        step += 1
        if rank == 0 and step % settings["checkpoint_steps"] == 0:
            save(settings["checkpoint"], step, model, optimizer)


if __name__ == "__main__":
    main()
