"""What differs between the ways in which the ranks of a job train together: all take the mean of their gradients in each step (gradients.py),
also where the ranks of a pod share one state (sharded.py), or each takes some steps alone, and then all take the mean of their states (windows.py).
"""
from __future__ import annotations

import dataclasses
import typing

import torch

if typing.TYPE_CHECKING:
    from lockstep.batches import Batch
    from lockstep.rounds import Round
    from lockstep.state import Stateful
    from lockstep.step import Step


@dataclasses.dataclass
class Final:
    """Steps that are not repeated any more while a rank is left."""

    steps: int
    samples: int
    """Of this rank."""
    global_samples: int
    loss: float
    """The mean over the samples of all ranks."""
    leaves: bool = False
    """A rank has asked all to leave the round."""
    saves: bool = False
    """A rank has asked all to save."""


class Averaging(typing.Protocol):
    model: torch.nn.Module
    """For the script to call."""
    step: Step | None
    """The one under way."""
    open_steps: int
    """Taken, but not final."""
    state: typing.Sequence[Stateful]
    """Its own, which must be equal on all ranks, too."""

    def enter_round(self, round_: Round) -> None: ...

    def leave_round(self) -> None:
        """Forgets what refers to the process group."""

    def begin(self, step: Step) -> None: ...

    def accumulate(self, batch: Batch, size: int) -> typing.Iterator[Batch]:
        """The micro-batches of the batch. What is summed over the ranks is summed in the backward pass of the last one."""

    def before_update(self, optimizer: torch.optim.Optimizer) -> None: ...

    def total(self, value: float) -> float:
        """The sum over the ranks that take the step together."""

    def mean_loss(self, step: Step) -> float:
        """Of these ranks, after the backward pass."""

    def finish(self, step: Step) -> Final | None:
        """The step has made its updates. None: it is not final yet, or the round has failed and it was taken back."""

    def take_back(self) -> bool:
        """What is not final, because the round has failed. False: there is nothing to take back."""
