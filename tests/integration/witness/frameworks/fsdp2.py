"""A model whose parameters `fully_shard` (FSDP2) divides between the ranks.

fsdp2.py FOLDER STEPS
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(int(sys.argv[2])):
    torch.nn.functional.cross_entropy(model(torch.randn(8, 32)), torch.randint(0, 2, (8,))).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
