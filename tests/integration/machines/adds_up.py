"""A script for torchrun: its ranks add up their numbers. adds_up.py FOLDER: each writes FOLDER/sum-RANK."""
import pathlib
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
number = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(number)
pathlib.Path(sys.argv[1], f"sum-{dist.get_rank()}").write_text(str(number.item()))
dist.destroy_process_group()
