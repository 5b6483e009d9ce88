#!/usr/bin/env python3
"""What NCCL takes in a change of rounds, with one rank on one GPU: connecting, the first sum, the abort. nccl.py [--turns N]

connect      ProcessGroupNCCL with its communicator, as a round makes it
first sum    of one float; NCCL loads its kernels
abort        of a group with nothing to do, and of one whose sum waits behind a kernel that takes seconds
again        connecting after the abort, in the same process

Two ranks need two GPUs: how long an abort takes while a peer hangs, and what ncclCommShrink saves, are not measured here.
"""
import argparse
import collections
import datetime
import os
import statistics
import time

# As runtime/cuda/nccl_backend.cc: no watchdog.
os.environ.update(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_ENABLE_MONITORING="0")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

DEVICE = torch.device("cuda:0")
SLOW_CYCLES = 10_000_000_000  # about 5 s


def measured(times, name, action):
    torch.cuda.synchronize() if name != "abort, busy" else None
    begin = time.monotonic()
    result = action()
    times[name].append(time.monotonic() - begin)
    return result


def connect():
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = datetime.timedelta(seconds=60)
    group = dist.ProcessGroupNCCL(dist.HashStore(), 0, 1, options)
    group.eager_connect_single_device(DEVICE)
    return group


def add_up(group):
    group.allreduce([torch.ones(1, device=DEVICE)]).wait()
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.ones(1, device=DEVICE)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    times = collections.defaultdict(list)
    for turn in range(options.turns):
        group = measured(times, "again" if turn else "connect", connect)
        measured(times, "next first sum" if turn else "first sum", lambda: add_up(group))
        measured(times, "abort", group.abort)
        group = measured(times, "again", connect)
        add_up(group)
        torch.cuda._sleep(SLOW_CYCLES)
        group.allreduce([torch.ones(1, device=DEVICE)])
        measured(times, "abort, busy", group.abort)
        measured(times, "what was left", torch.cuda.synchronize)
    for name, seconds in times.items():
        print(f"{name:14} {statistics.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})")


if __name__ == "__main__":
    main()
