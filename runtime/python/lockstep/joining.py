"""How a script becomes a rank of an elastic job."""
from __future__ import annotations

import functools
import os
import typing

import torch
from torch.nn.parallel import DistributedDataParallel

from lockstep.errors import LockstepError
from lockstep.gradients import GradientAveraging
from lockstep.job import Job
from lockstep.pod import this_pod
from lockstep.registration import check_parameters
from lockstep.state import Stateful
from lockstep.windows import WindowAveraging, check_arguments


def join(model: torch.nn.Module, *state: Stateful, checkpoints: str | os.PathLike[str] | None = None, step: int = 0,
         ddp: dict[str, typing.Any] | None = None, average_every: int | None = None, outer_optimizer: torch.optim.Optimizer | None = None) -> Job:
    """Joins the job that this process was started for; alone, trains as one process.

    `model` and `state` (optimizer, scheduler, anything with `state_dict` and `load_state_dict`) become equal on all ranks: a rank that starts
    receives them from one that trains. So pass all that changes while the script trains. `checkpoints`: the folder or bucket that `job.save()`
    saves into; if no rank has the state, the newest checkpoint there is loaded. `step`: how many steps the state has, if the script has loaded it
    itself; it must be the same on all ranks. `ddp`: arguments of DistributedDataParallel.

    `average_every`: instead of averaging gradients in each step, each rank trains alone for this many steps; then all take the mean of their
    states. `outer_optimizer` takes a step with the mean change of the parameters as their gradients.

    A model that `fully_shard` has divided over `lockstep.shard_mesh()` stays so: each pod has the state once, and the pods take the mean of their
    gradients.

    Examples:
        >>> job = lockstep.join(model, optimizer, scheduler)
        >>> job = lockstep.join(model, optimizer, average_every=50)  # LocalSGD
        >>> job = lockstep.join(model, optimizer, average_every=50,  # DiLoCo
        ...                     outer_optimizer=torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True))
    """
    if not isinstance(model, torch.nn.Module):
        raise LockstepError(f"the first argument of join must be the model, a torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, DistributedDataParallel):
        raise LockstepError("pass the model itself to join, not DistributedDataParallel(model): `job.model` is that")
    for each in state:
        if not hasattr(each, "state_dict") or not hasattr(each, "load_state_dict"):
            raise LockstepError(f"{type(each).__name__} has no state_dict and load_state_dict, so it cannot be made equal on all ranks")
    if checkpoints is not None and step > 0:
        raise LockstepError("join needs either `checkpoints`, from which it loads the state, or the `step` of the state that the script has loaded")
    check_parameters(model, state)
    check_arguments(model, state, average_every, outer_optimizer, ddp)
    if _is_sharded(model) or this_pod().mesh is not None:
        from lockstep.sharded import ShardedAveraging, check_sharded  # DTensor takes a while to import
        check_sharded(model, average_every, ddp)
        return Job(model, state, checkpoints, step, ShardedAveraging)
    if average_every is None:
        return Job(model, state, checkpoints, step, functools.partial(GradientAveraging, ddp=ddp or {}))
    return Job(model, state, checkpoints, step, functools.partial(WindowAveraging, every=average_every, outer_optimizer=outer_optimizer))


def _is_sharded(model: torch.nn.Module) -> bool:
    return any(hasattr(module, "set_requires_gradient_sync") for module in model.modules())  # FSDPModule, which takes a while to import
