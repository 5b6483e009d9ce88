"""The ranks of a pod share one state, as FSDP2 divides it, and the pods take the mean of their gradients in each step.

Between the pods, each rank adds its shard of the gradients to those of the ranks with the same number. The round may fail for one rank of a pod
and not for another one, so they agree before they make an update, or repeat the step: an error of a collective between the pods ends no pass.
"""
from __future__ import annotations

import contextlib
import typing

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from lockstep.averaging import Final
from lockstep.errors import LockstepError, RoundBroken
from lockstep.pod import LOST_BY_ANOTHER, this_pod

if typing.TYPE_CHECKING:
    from lockstep.batches import Batch
    from lockstep.job import Job
    from lockstep.rounds import Round
    from lockstep.state import Stateful
    from lockstep.step import Step


class ShardedAveraging:
    """An Averaging. A step is final before its first update, so nothing has to be taken back."""

    def __init__(self, job: Job, model: torch.nn.Module, state: typing.Sequence[Stateful]) -> None:
        assert isinstance(model, FSDPModule)
        self.model: torch.nn.Module = model
        self.step: Step | None = None
        self.open_steps = 0
        self.state: typing.Sequence[Stateful] = ()
        self._job, self._root, self._pod = job, model, this_pod()
        self._round: Round | None = None
        self._has_gradients = False
        self._totals: list[float] | None = None  # requests to leave and to save, the loss, and the learning rates, of all ranks
        self._rates = 0.0  # with which this rank takes the step
        for module in _sharded_modules(model):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)
            module.set_custom_reduce_scatter(_Weighted(self))  # type: ignore[arg-type]
            module.set_all_reduce_hook(self._add_up)

    def enter_round(self, round_: Round) -> None:
        self._round = round_

    def leave_round(self) -> None:
        self._round = None
        self._root.reset_iter_state()  # also drops the gradients
        for parameter in self.model.parameters():
            parameter.grad = None

    def begin(self, step: Step) -> None:
        self.step, self._has_gradients, self._totals = step, False, None

    def accumulate(self, batch: Batch, size: int) -> typing.Iterator[Batch]:
        """As many on each rank, because all ranks of a pod take part in each pass."""
        largest_share = -(-batch.global_size // self._job.world)
        parts = batch.micro_batches(size, at_least=-(-largest_share // size))
        self._root.set_requires_gradient_sync(False)
        try:
            yield from parts[:-1]
        finally:
            self._root.set_requires_gradient_sync(True)
        yield parts[-1]

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        assert self.step is not None
        self.step.reaches("reduce")
        self._settle(self.step)

    def total(self, value: float) -> float:
        return self._sum(value)[0]

    def mean_loss(self, step: Step) -> float:
        return self._settle(step)[2]

    def finish(self, step: Step) -> Final | None:
        if self._round is not None and not self._has_gradients:
            raise LockstepError("the step had no backward pass through job.model, so its gradients were not added up over the ranks")
        try:
            leaves, saves, loss, rates = self._settle(step)
        except RoundBroken:  # of a step without an update
            return None
        if self._round is not None:
            self._job.registration.expect_same_rates(self._rates, rates / self._job.world)
        batch = step.batch
        return Final(1, len(batch.ids) if batch else 0, batch.global_size if batch else 0, loss, leaves > 0, saves > 0)

    def take_back(self) -> bool:
        return False

    def weigh(self, gradients: torch.Tensor) -> None:
        """The gradient of the global batch is the sum of the ranks' means, weighted by their shares."""
        weight = self._weight()
        if weight > 0:
            gradients.mul_(weight)
        else:
            gradients.zero_()  # also where the sample that counts nothing has given a NaN

    def _weight(self) -> float:
        if self.step is None:
            raise LockstepError("backward() was called outside of `with job.step():`, where no other rank takes part")
        return self.step.batch.weight if self.step.batch is not None else 1 / self._job.world

    def _add_up(self, gradients: torch.Tensor) -> None:
        """For FSDP2: this rank's shard of the sum over the ranks of the pod."""
        if self._pod.size == 1:  # then FSDP2 scatters nothing
            self.weigh(gradients)
        self._has_gradients = True
        if self._round is None:
            return
        self._job.progress.communicated += gradients.numel() * gradients.element_size()
        with contextlib.suppress(RuntimeError):  # the other ranks of the pod learn it before the update
            self._round.all_reduce(gradients).wait()
        if self.step is not None:
            self.step.reaches("backward")

    def _settle(self, step: Step) -> list[float]:
        """The gradients are those of the global batch on all ranks of this pod, or RoundBroken on all of them."""
        if self._totals is None:
            leaves, saves = self._job.requests()
            self._rates = self._job.registration.rates()
            self._totals = self._sum(float(leaves), float(saves), step.loss * self._weight(), self._rates)
        return self._totals

    def _sum(self, *values: float) -> list[float]:
        """Over all ranks. RoundBroken: a rank of this pod has lost the round; then all of them raise it."""
        round_ = self._round
        if round_ is None:
            return list(values)
        found = list(values)
        with contextlib.suppress(RuntimeError):
            found = round_.all_reduce(torch.tensor(values, dtype=torch.float64, device=round_.device)).wait().tolist()
        rows = self._pod.gather(float(round_.failure is not None), *found)
        if any(has_failed for has_failed, *_ in rows):
            round_.abort(LOST_BY_ANOTHER)
            raise RoundBroken(round_.failure)
        return [sum(column) for column in zip(*rows)][1:]


class _Weighted:
    """A ReduceScatter of FSDP2, which calls it with the whole gradients of this rank."""

    def __init__(self, averaging: ShardedAveraging) -> None:
        self._averaging = averaging

    def allocate(self, size: typing.Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, op: typing.Any,
                 async_op: bool = False) -> typing.Any:
        self._averaging.weigh(input_tensor)
        return dist.reduce_scatter_tensor(output_tensor, input_tensor, group=group, op=op, async_op=async_op)


def _sharded_modules(model: torch.nn.Module) -> typing.Iterator[FSDPModule]:
    return (module for module in model.modules() if isinstance(module, FSDPModule))


def check_sharded(model: torch.nn.Module, average_every: int | None, ddp: dict[str, typing.Any] | None) -> None:
    mesh = this_pod().mesh
    if not hasattr(FSDPModule, "reset_iter_state"):
        raise LockstepError(f"a sharded model needs PyTorch 2.15 or newer, and this is {torch.__version__}")
    if mesh is None:
        raise LockstepError("the model is sharded over a mesh of its own: use that of this pod, fully_shard(model, mesh=lockstep.shard_mesh())")
    if not isinstance(model, FSDPModule):
        raise LockstepError("the model as a whole is not sharded: after its layers, call fully_shard(model, mesh=lockstep.shard_mesh())")
    for name, parameter in model.named_parameters():
        if not isinstance(parameter, DTensor):
            raise LockstepError(f"{name} is not sharded, so its gradient would be that of this rank alone: pass no `ignored_params` to fully_shard")
        if parameter.device_mesh != mesh:
            raise LockstepError(f"{name} is sharded over {parameter.device_mesh}, not over the ranks of this pod, lockstep.shard_mesh()")
    if average_every is not None:
        raise LockstepError("average_every needs the whole state in each rank, so it does not work with fully_shard")
    if ddp is not None:
        raise LockstepError("ddp are arguments of DistributedDataParallel, which a model that is sharded does not use")
