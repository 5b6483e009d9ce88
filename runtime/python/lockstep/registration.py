"""Whether all that a script trains was passed to `join`. What was not would differ between ranks as soon as one of them is replaced."""
from __future__ import annotations

import math
import typing
import weakref

import torch
from torch.optim.lr_scheduler import LRScheduler

from lockstep.errors import LockstepError

if typing.TYPE_CHECKING:
    from lockstep.state import Stateful

_RATE_TOLERANCE = 1e-6  # of equal numbers, whose mean is rounded


def check_parameters(model: torch.nn.Module, state: typing.Sequence[Stateful]) -> None:
    """LockstepError: an optimizer updates what is not in the model, so its gradients are not averaged."""
    trained = {id(parameter) for parameter in model.parameters()}
    for optimizer in state:
        if not isinstance(optimizer, torch.optim.Optimizer):
            continue
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in trained:
                    raise LockstepError(f"{type(optimizer).__name__} updates a parameter of shape {tuple(parameter.shape)} that is not in the model passed to "
                                        "join: pass one torch.nn.Module that contains all that is trained")


class Registration:
    """Of the optimizers that make updates within `with job.step():`."""

    def __init__(self, state: typing.Sequence[Stateful]) -> None:
        self._state = state
        self._known: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def expect(self, optimizer: torch.optim.Optimizer) -> None:
        """Before its update. LockstepError: it was not passed to `join`."""
        if optimizer in self._known:
            return
        if not any(each is optimizer or _holds(each, optimizer) for each in self._state):
            raise LockstepError(f"{type(optimizer).__name__} was not passed to join, so what it updates would differ between ranks: "
                                "lockstep.join(model, optimizer). An optimizer of this rank alone makes its updates outside of `with job.step():`")
        self._known.add(optimizer)

    def rates(self) -> float:
        """The learning rates of all parameter groups, added up. Without those on a device, for which the host would wait."""
        groups = (group for each in self._state if isinstance(each, torch.optim.Optimizer) for group in each.param_groups)
        return sum((float(group["lr"]) for group in groups if isinstance(group.get("lr"), (int, float))), 0.0)

    @staticmethod
    def expect_same_rates(own: float, mean: float) -> None:
        """`rates` of a step that all ranks take together. LockstepError: they train with different ones, so their models differ from now on."""
        if not math.isclose(own, mean, rel_tol=_RATE_TOLERANCE):
            raise LockstepError(f"the learning rate differs between the ranks: it is {own:g} on this one and {mean:g} in their mean. What changes it must be "
                                "passed to join, lockstep.join(model, optimizer, scheduler), and must change it after the same steps on all ranks")


def _holds(each: Stateful, optimizer: torch.optim.Optimizer) -> bool:
    """As a wrapper, whose state contains that of the optimizer. A scheduler refers to its optimizer only."""
    if isinstance(each, LRScheduler):
        return False
    values = getattr(each, "__dict__", {}).values()
    return any(value is optimizer or isinstance(value, (list, tuple)) and any(item is optimizer for item in value) for value in values)
