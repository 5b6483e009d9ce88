"""LocalSGD and DiLoCo by the rules of runtime/train/local_sgd/local_sgd.h: each rank takes the steps of a window alone, with its share of each global
batch; then all take the mean of their states, weighted by the samples that each has used.

The window is the transaction. A rank keeps a copy of its state from the begin of the window, and a failure before the last sum puts it back. A
sum needs the part of every rank, so ranks differ by at most one window, and the newest state counts in the next round.
"""
from __future__ import annotations

import typing
import zlib

import torch
import torch.utils._pytree as pytree

from lockstep.averaging import Final
from lockstep.errors import LockstepError
from lockstep.mean import Part, pieces, take, weighted
from lockstep.state import State
from lockstep.undo import Undo

if typing.TYPE_CHECKING:
    from lockstep.batches import Batch
    from lockstep.job import Job
    from lockstep.rounds import Round
    from lockstep.state import Stateful
    from lockstep.step import Step

_Origins = dict[torch.nn.Parameter, torch.Tensor]  # what trained parameters were at the begin of the window


class _Row(typing.NamedTuple):
    """What each rank says at the end of a window."""

    samples: float
    loss: float  # summed over its samples
    leaves: float
    saves: float
    layout: float  # of the states of its optimizers


class WindowAveraging:
    """An Averaging. Modules and optimizers get the mean; other objects, such as schedulers and scalers, become those of rank 0. So the state is
    equal on all ranks after each window.
    """

    def __init__(self, job: Job, model: torch.nn.Module, state: typing.Sequence[Stateful], every: int,
                 outer_optimizer: torch.optim.Optimizer | None) -> None:
        self.model = model
        self.step: Step | None = None
        self.open_steps = 0
        self.state: typing.Sequence[Stateful] = () if outer_optimizer is None else (outer_optimizer,)
        self._job, self._every, self._outer = job, every, outer_optimizer
        self._objects: list[Stateful] = [model, *state]
        self._optimizers = [each for each in state if isinstance(each, torch.optim.Optimizer)]
        self._undo = Undo(self._objects)
        self._round: Round | None = None
        self._samples, self._loss = 0, 0.0  # of this rank in this window; the loss is summed over the samples
        self._buffers_before: list[torch.Tensor] = []  # where the step counts nothing

    def enter_round(self, round_: Round) -> None:
        self._round = round_

    def leave_round(self) -> None:
        self._round = None

    def begin(self, step: Step) -> None:
        self.step = step
        self._undo.remember()
        self._buffers_before = [] if step.samples else [each.clone() for each in self.model.buffers()]

    def accumulate(self, batch: Batch, size: int) -> typing.Iterator[Batch]:
        return iter(batch.micro_batches(size))

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        assert self.step is not None
        self.step.reaches("backward")
        if self.step.samples == 0:  # an optimizer leaves a parameter without a gradient as it is
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

    def total(self, value: float) -> float:
        return value

    def mean_loss(self, step: Step) -> float:
        return step.loss

    def finish(self, step: Step) -> Final | None:
        for buffer, before in zip(self.model.buffers(), self._buffers_before):
            buffer.copy_(before)
        self.open_steps += 1
        self._samples += step.samples
        self._loss += step.loss * step.samples
        rows = self._end_window(step) if self._is_last(step) else []
        if not rows:
            return None
        samples = sum(row.samples for row in rows)
        final = Final(self.open_steps, self._samples, int(samples), sum(row.loss for row in rows) / samples,
                      leaves=any(row.leaves for row in rows), saves=any(row.saves for row in rows))
        self._undo.forget()
        self._begin_window()
        return final

    def take_back(self) -> bool:
        self._job.progress.repeated += self.open_steps
        self._begin_window()
        return self._undo.restore()

    def _is_last(self, step: Step) -> bool:
        """Windows are counted from the first step of the training, so they are the same in each round."""
        return (step.number + 1) % self._every == 0 or (step.batch is not None and step.batch.is_last)

    def _begin_window(self) -> None:
        self.open_steps, self._samples, self._loss = 0, 0, 0.0

    def _end_window(self, step: Step) -> list[_Row]:
        """What all ranks have said. Empty: the round has failed, and the window was taken back."""
        mine = _Row(self._samples, self._loss, *self._job.requests(), _layout(self._optimizers))
        rows = [mine]
        if self._round is not None:
            self._job.says_phase("average")
            try:
                rows = _exchange(mine, self._round)
                self._make_equal(rows, self._round)
            except RuntimeError as error:
                self._round.abort(str(error))
                self.take_back()
                return []
            self._job.says_phase("train")
            step.reaches("reduce")
        if self._outer is not None and self._undo.before is not None:
            take_outer_step(self._outer, _origins(self.model, self._undo.before[0]))
            step.reaches("optimizer")
        return rows

    def _make_equal(self, rows: list[_Row], round_: Round) -> None:
        """RuntimeError: the round has failed, and the state is half done."""
        # A parameter that has got a gradient on some ranks only has no state on the others.
        have_mean = (torch.nn.Module, torch.optim.Optimizer) if len({row.layout for row in rows}) == 1 else torch.nn.Module
        _take_from_first([each for each in self._objects if not isinstance(each, have_mean)], round_)
        assert self._undo.before is not None
        parts = [part for each, before in zip(self._objects, self._undo.before) if isinstance(each, have_mean) for part in _parts(each, before)]
        weight = rows[round_.rank].samples / sum(row.samples for row in rows)
        for piece in pieces(parts):
            given = weighted(piece, weight, is_first=round_.rank == 0, device=round_.device)
            self._job.progress.communicated += given.numel() * given.element_size()
            take(piece, round_.all_reduce(given).wait())


@torch.no_grad()
def take_outer_step(optimizer: torch.optim.Optimizer, origins: _Origins) -> None:
    """The mean change of the window is the gradient of the outer optimizer, which starts from the begin of the window: with SGD and Nesterov
    momentum, this is DiLoCo.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = origins[parameter] - parameter
            parameter.copy_(origins[parameter])
    optimizer.step()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def check_arguments(model: torch.nn.Module, state: typing.Sequence[Stateful], every: int | None, outer_optimizer: torch.optim.Optimizer | None,
                    ddp: dict[str, typing.Any] | None) -> None:
    """LockstepError: those of `join` do not fit together."""
    if every is None:
        if outer_optimizer is not None:
            raise LockstepError("outer_optimizer takes a step at each average, so join needs average_every, too")
        return
    if every < 1:
        raise LockstepError(f"average_every must be at least 1 step, not {every}")
    if ddp:
        raise LockstepError("join needs either average_every or `ddp`: with average_every there is no DistributedDataParallel")
    if any(each.is_complex() for each in model.state_dict().values() if isinstance(each, torch.Tensor)):
        raise LockstepError("average_every does not support complex numbers, which the model has")
    if outer_optimizer is None:
        return
    if not isinstance(outer_optimizer, torch.optim.Optimizer):
        raise LockstepError(f"outer_optimizer must be a torch.optim.Optimizer, not {type(outer_optimizer).__name__}")
    if any(each is outer_optimizer for each in state):
        raise LockstepError("outer_optimizer is made for the averages only: the script must not use it, nor pass it to join a second time")
    trained = {parameter for parameter in model.parameters() if parameter.requires_grad}
    if not all(parameter in trained for group in outer_optimizer.param_groups for parameter in group["params"]):
        raise LockstepError("outer_optimizer has a parameter that is not one of the model, or that is not trained")


def _exchange(mine: _Row, round_: Round) -> list[_Row]:
    rows = torch.zeros(round_.world, len(mine), dtype=torch.float64, device=round_.device)
    rows[round_.rank] = torch.tensor(mine, dtype=rows.dtype)
    return [_Row(*row) for row in round_.all_reduce(rows).wait().tolist()]


def _take_from_first(objects: typing.Sequence[Stateful], round_: Round) -> None:
    def move(tensor: torch.Tensor) -> None:
        """Bytes have a sum that loses nothing, and an abort ends the wait for it."""
        data = tensor.view(torch.uint8)
        if round_.rank != 0:
            data.zero_()
        round_.all_reduce(data).wait()

    state = State(objects, round_.device)
    transfer = state.send if round_.rank == 0 else state.receive
    transfer(move)


def _origins(module: torch.nn.Module, before: dict[str, typing.Any]) -> _Origins:
    state = module.state_dict(keep_vars=True)
    return {each: before[name] for name, each in state.items() if isinstance(each, torch.nn.Parameter) and each.requires_grad}


def _parts(each: Stateful, before: dict[str, typing.Any]) -> list[Part]:
    """Of a module or an optimizer. A parameter that is not trained is equal on all ranks."""
    if not isinstance(each, torch.nn.Module):
        leaves = pytree.tree_leaves_with_path(each.state_dict())
        return [Part(leaf, counts=getattr(path[-1], "key", None) == "step") for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    tensors = [leaf for leaf in each.state_dict(keep_vars=True).values() if isinstance(leaf, torch.Tensor)]
    return [*(Part(tensor, origin) for tensor, origin in _origins(each, before).items()),
            *(Part(tensor) for tensor in tensors if not isinstance(tensor, torch.nn.Parameter))]


def _layout(optimizers: typing.Sequence[torch.optim.Optimizer]) -> float:
    """Equal if the states have the same tensors, and the same values of everything else."""
    states = pytree.tree_map_only(torch.Tensor, lambda tensor: (tensor.shape, tensor.dtype), [each.state_dict() for each in optimizers])
    return zlib.crc32(repr(states).encode())
