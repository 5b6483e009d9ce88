"""An ordinary DistributedDataParallel script as torchrun starts it: Gloo on CPUs, a checkpoint in a folder, resumed where there is one.

ddp.py FOLDER STEPS    appends a line of the sample ledger's form to FOLDER for each step
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT_STEPS = 5


def main():
    folder, steps = sys.argv[1], int(sys.argv[2])
    checkpoint = f"{folder}/checkpoint.pt"
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = torch.nn.Linear(64, 10)
    step = 0
    if os.path.exists(checkpoint):
        stored = torch.load(checkpoint)
        step = stored["step"]
        model.load_state_dict(stored["model"])
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    ledger = os.open(f"{folder}/{rank}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while step < steps:
        optimizer.zero_grad()
        inputs = torch.rand(32, 64)
        torch.nn.functional.cross_entropy(parallel(inputs), inputs.argmax(1) % 10).backward()
        optimizer.step()
        line = {"event": "commit", "round": int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1, "step": step, "rank": rank,
                "time": time.time()}
        os.write(ledger, (json.dumps(line, separators=(",", ":")) + "\n").encode())
        step += 1
        if rank == 0 and step % CHECKPOINT_STEPS == 0:
            torch.save({"step": step, "model": model.state_dict()}, checkpoint + ".partial")
            os.rename(checkpoint + ".partial", checkpoint)
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
