"""Elastic training of PyTorch models: the survivors of a failure keep their process, their device and their state.

    import lockstep

    job = lockstep.join(model, optimizer)
    for batch in job.batches(dataset, global_batch_size=256, epochs=4):
        with job.step():
            optimizer.zero_grad()
            loss_fn(job.model(batch.inputs), batch.targets).backward()
            optimizer.step()

`lockstep run --nproc 4 -- python train.py` starts such a script on one machine, a DistributedTrainingJob on Kubernetes. Started by
`python train.py` alone, it trains as one process. `lockstep.Client` submits jobs, from a machine that needs no PyTorch.
"""
from __future__ import annotations

import importlib
import typing

from lockstep.errors import JobFailed, LockstepError, Stopped

if typing.TYPE_CHECKING:
    from lockstep.batches import Batch, SamplePlan
    from lockstep.client import Client, TrainingJob
    from lockstep.job import Job
    from lockstep.joining import join
    from lockstep.pod import shard_mesh
    from lockstep.step import Step

__all__ = ["Batch", "Client", "Job", "JobFailed", "LockstepError", "SamplePlan", "Step", "Stopped", "TrainingJob", "join", "shard_mesh"]

# Imported when they are used: the client needs no PyTorch, a script needs no client.
_MODULES = {"Batch": "batches", "SamplePlan": "batches", "Client": "client", "TrainingJob": "client", "Job": "job", "Step": "step", "join": "joining",
            "shard_mesh": "pod"}


def __getattr__(name: str) -> typing.Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"lockstep.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
