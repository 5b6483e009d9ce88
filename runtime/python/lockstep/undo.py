"""Takes back a step in which one of several optimizers has applied its update when a rank is lost: half a step would count otherwise.

With one optimizer there is nothing to take back: when it applies its update, all sums of the step are there.
"""
from __future__ import annotations

import copy
import typing

import torch

if typing.TYPE_CHECKING:
    from lockstep.state import Stateful


class Undo:
    def __init__(self, objects: typing.Sequence[Stateful]) -> None:
        self._objects = objects
        optimizers = [each for each in objects if isinstance(each, torch.optim.Optimizer)]
        self._parameters = [parameter for each in optimizers for group in each.param_groups for parameter in group["params"]] if len(optimizers) > 1 else []
        self._before: tuple[list[torch.Tensor], list[dict[str, typing.Any]]] | None = None

    def forget(self) -> None:
        self._before = None

    def remember(self) -> None:
        """Before each update: what was before the first one of the step is kept, a copy of the parameters and of the optimizers' state."""
        if self._parameters and self._before is None:
            self._before = [each.detach().clone() for each in self._parameters], [copy.deepcopy(each.state_dict()) for each in self._objects]

    def restore(self) -> bool:
        """Whether there was something to take back."""
        if self._before is None:
            return False
        parameters, states = self._before
        with torch.no_grad():
            for parameter, value in zip(self._parameters, parameters):
                parameter.copy_(value)
        for each, state in zip(self._objects, states):
            each.load_state_dict(state)
        self._before = None
        return True
