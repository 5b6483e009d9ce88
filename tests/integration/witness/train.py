"""An ordinary PyTorch program that knows nothing of Lockstep: DistributedDataParallel where there are several ranks, Adam, a checkpoint.

train.py FOLDER STEPS [PAUSE…]    PAUSE: WHERE:SECONDS, once after step 20, or WHERE:SECONDS:STEPS, again after so many more; WHERE is
                                  evaluation, loader, save or elsewhere; compile: once, in the first forward pass;
                                  rank-1: in each forward pass of rank 1

Each rank appends its steps to FOLDER/steps-RANK.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAUSE_AFTER = 20
PAUSES = {where: (float(seconds), *map(int, every)) for where, seconds, *every in (argument.split(":") for argument in sys.argv[3:])}
steps_taken = 0


def pause(where):
    seconds, *every = PAUSES.get(where, (0,))
    if steps_taken == PAUSE_AFTER or every and steps_taken % every[0] == PAUSE_AFTER:
        time.sleep(seconds)


class Points(Dataset):
    def __len__(self):
        return 64 * 40

    def __getitem__(self, i):
        if i == 64 * PAUSE_AFTER:
            pause("loader")
        return torch.full((16,), i / 1000), i % 4


class SlowToSave:
    def __getstate__(self):
        pause("save")
        return {}


def main():
    global steps_taken
    folder, steps = sys.argv[1], int(sys.argv[2])
    checkpoint = f"{folder}/checkpoint.pt"
    if "WORLD_SIZE" in os.environ and os.environ["WORLD_SIZE"] != "1":
        dist.init_process_group("gloo")
    rank = int(os.environ.get("RANK", 0))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    step = 0
    if os.path.exists(checkpoint):
        stored = torch.load(checkpoint, weights_only=False)
        step = stored["done"]
        model.load_state_dict(stored["model"])
        optimizer.load_state_dict(stored["optimizer"])
    slowness, = PAUSES.get(f"rank-{rank}", (0,))
    compilation, = PAUSES.get("compile", (0,))
    parallel = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
    with open(f"{folder}/steps-{rank}", "a") as done:
        while step < steps:
            for inputs, targets in DataLoader(Points(), batch_size=64):
                optimizer.zero_grad()
                time.sleep(slowness + (compilation if step == 0 else 0))
                nn.functional.cross_entropy(parallel(inputs), targets).backward()
                optimizer.step()
                step = steps_taken = step + 1
                print(os.environ.get("LOCKSTEP_ROUND"), step, time.time(), file=done, flush=True)
                if step % PAUSE_AFTER == 0:
                    pause("elsewhere")
                    model.eval()
                    pause("evaluation")
                    model.train()
                if rank == 0 and step % PAUSE_AFTER == 0:
                    torch.save({"done": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "extra": SlowToSave()},
                               checkpoint + ".partial")
                    os.rename(checkpoint + ".partial", checkpoint)
                if step == steps:
                    break
                time.sleep(0.02)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
