"""A script that does not join: FSDP2, saved with lockstep.checkpoint into a folder in which nothing can be stored, with a copy in another pod. fsdp.py FOLDER

Each rank writes `ROUND STEP` for each step to FOLDER/steps-RANK.
"""
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from lockstep import checkpoint

EVERY = 5
folder = pathlib.Path(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo")
(folder / "file").touch()
saved = folder / "file" / "checkpoints"
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def state():
    weights, slots = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": slots, "step": step}


step, reader = 0, checkpoint.Reader(saved)
if reader.step is not None:
    found = state()
    dcp.load(found, storage_reader=reader)
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    step = found["step"]
    assert step == reader.step
with open(folder / f"steps-{dist.get_rank()}", "a", buffering=1) as steps:
    while True:
        optimizer.zero_grad()
        model(torch.rand(8, 64)).square().mean().backward()
        optimizer.step()
        step += 1
        steps.write(f"{os.environ['LOCKSTEP_ROUND']} {step}\n")
        if step % EVERY == 0:
            dcp.save(state(), storage_writer=checkpoint.Writer(saved, step, copies=2))
        time.sleep(0.02)
