"""What torchrun starts: DistributedDataParallel over Gloo on the model, data, batch and checkpoint interval of recovery.py.

ddp.py SETTINGS.json    trains until it is ended; appends one line of the sample ledger's form for each finished step
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def model_of(settings):
    sizes = [settings["features"], *settings["hidden"], settings["classes"]]
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def save(path, step, model, optimizer):
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".partial")
    os.rename(path + ".partial", path)


def main():
    settings = json.load(open(sys.argv[1]))
    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    start = torch.tensor([time.time_ns()])
    dist.broadcast(start, 0)  # tells the lines of one membership from those of the one before
    inputs = torch.rand(settings["samples"], settings["features"])
    targets = torch.randint(settings["classes"], (settings["samples"],))
    model = model_of(settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["learning_rate"], momentum=settings["momentum"])
    step = 0
    if os.path.exists(settings["checkpoint"]):
        stored = torch.load(settings["checkpoint"])
        step = stored["step"]
        model.load_state_dict(stored["model"])
        optimizer.load_state_dict(stored["optimizer"])
    parallel = DistributedDataParallel(model)
    share = settings["global_batch"] // world
    ledger = os.open(f"{settings['ledger']}/{rank}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        begin = (step * settings["global_batch"] + rank * share) % (settings["samples"] - share)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(inputs[begin:begin + share]), targets[begin:begin + share])
        loss.backward()
        optimizer.step()
        os.write(ledger, (json.dumps({"event": "commit", "round": start.item(), "step": step, "rank": rank,
                                      "time": time.time()}, separators=(",", ":")) + "\n").encode())
        step += 1
        if rank == 0 and step % settings["checkpoint_steps"] == 0:
            save(settings["checkpoint"], step, model, optimizer)


if __name__ == "__main__":
    main()
