"""In each step all ranks take the mean of their gradients, so the step is final when its update is made."""
from __future__ import annotations

import contextlib
import functools
import inspect
import typing

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _BufferCommHookLocation

from lockstep.averaging import Final
from lockstep.errors import LockstepError
from lockstep.undo import Undo

if typing.TYPE_CHECKING:
    from lockstep.batches import Batch
    from lockstep.job import Job
    from lockstep.rounds import Round
    from lockstep.state import Stateful
    from lockstep.step import Step

# All ranks have the same state. PyTorch 2.4 has no such option and broadcasts that of rank 0.
_WITHOUT_SYNC: dict[str, typing.Any] = {"init_sync": False} if "init_sync" in inspect.signature(DistributedDataParallel.__init__).parameters else {}


class GradientAveraging:
    """An Averaging. With several optimizers, a step in which only some have made their update can be taken back."""

    def __init__(self, job: Job, model: torch.nn.Module, state: typing.Sequence[Stateful], ddp: dict[str, typing.Any]) -> None:
        self.model = model  # DistributedDataParallel from the first round on
        self.step: Step | None = None
        self.open_steps = 0
        self.state: typing.Sequence[Stateful] = ()
        self._job, self._module, self._ddp = job, model, ddp
        has_several = sum(isinstance(each, torch.optim.Optimizer) for each in state) > 1
        self._undo = Undo([model, *state]) if has_several else None
        self._round: Round | None = None
        self._totals: torch.futures.Future[torch.Tensor] | None = None  # what is summed together with the gradients
        self._may_rebuild_buckets = False  # the round has had its first backward pass
        self._rates = 0.0  # with which this rank takes the step

    def enter_round(self, round_: Round) -> None:
        """The same object in each round, so the script may keep a reference to it."""
        if not isinstance(self.model, DistributedDataParallel):
            self.model = DistributedDataParallel.__new__(DistributedDataParallel)
        initialise = functools.partial(DistributedDataParallel.__init__, self.model, self._module, **_WITHOUT_SYNC, **self._ddp)
        initialise() if _WITHOUT_SYNC or round_.aborts_by_itself else round_.together(initialise)
        self.model.register_comm_hook(None, lambda _, bucket: self._reduce(round_, bucket))
        if not round_.aborts_by_itself:  # else an abort also ends what DistributedDataParallel does in the group by itself
            self.model._register_buffer_comm_hook(round_, _take_buffers_of_rank_0, _BufferCommHookLocation.PRE_FORWARD)
            self.model.register_forward_pre_hook(lambda model, _: self._rebuild_buckets(round_, model))
        self._may_rebuild_buckets, self._round = False, round_

    def leave_round(self) -> None:
        for name in ("reducer", "logger", "process_group"):
            if isinstance(self.model, DistributedDataParallel):
                setattr(self.model, name, None)
        for parameter in self._module.parameters():
            parameter.grad = None
        self._round = None

    def begin(self, step: Step) -> None:
        self.step, self._totals = step, None
        if self._undo is not None:
            self._undo.forget()

    def accumulate(self, batch: Batch, size: int) -> typing.Iterator[Batch]:
        parts = batch.micro_batches(size)
        for part in parts[:-1]:
            with self.model.no_sync() if isinstance(self.model, DistributedDataParallel) else contextlib.nullcontext():
                yield part
        yield parts[-1]

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        assert self.step is not None
        self.step.reaches("reduce")
        if self._undo is not None:
            self._undo.remember()

    def total(self, value: float) -> float:
        if self._round is None:
            return value
        return float(self._round.all_reduce(torch.tensor([value], dtype=torch.float64, device=self._round.device)).wait())

    def mean_loss(self, step: Step) -> float:
        if self._totals is not None:
            with contextlib.suppress(RuntimeError):  # the round has failed after the sum of the gradients; the step counts
                return float(self._totals.wait()[2])
        return step.loss

    def finish(self, step: Step) -> Final:
        if self._round is not None and self._totals is None:
            raise LockstepError("the step had no backward pass through job.model, so its gradients were not added up over the ranks")
        if self._undo is not None:
            self._undo.forget()
        batch = step.batch
        final = Final(1, len(batch.ids) if batch else 0, batch.global_size if batch else 0, step.loss)
        rates = self._rates * self._job.world
        if self._totals is not None:
            with contextlib.suppress(RuntimeError):  # then the round has failed; if the others have left it, this rank has the newest state
                leaves, saves, final.loss, rates = self._totals.wait().tolist()
                final.leaves, final.saves = leaves > 0, saves > 0
        self._job.registration.expect_same_rates(self._rates, rates / self._job.world)
        return final

    def take_back(self) -> bool:
        return self._undo is not None and self._undo.restore()

    def _rebuild_buckets(self, round_: Round, model: typing.Any) -> None:
        """In the second step of a round, all ranks take over the order of rank 0's gradients. DistributedDataParallel would do it in the forward pass."""
        if self._may_rebuild_buckets and torch.is_grad_enabled() and (model.static_graph or not model.find_unused_parameters):
            self._may_rebuild_buckets = False
            model._has_rebuilt_buckets = round_.together(model.reducer._rebuild_buckets)

    def _reduce(self, round_: Round, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        """For DistributedDataParallel: the gradient of the global batch is the sum of the ranks' means, weighted by their shares."""
        gradients, step = bucket.buffer(), self.step
        if step is None:
            raise LockstepError("backward() was called outside of `with job.step():`, where no other rank takes part")
        weight = step.batch.weight if step.batch is not None else 1 / round_.world
        if weight > 0:
            gradients.mul_(weight)
        else:
            gradients.zero_()  # also where the sample that counts nothing has given a NaN
        self._job.progress.communicated += gradients.numel() * gradients.element_size()
        summed = round_.all_reduce(gradients)
        step.reaches("backward")
        if bucket.is_last():
            leaves, saves = self._job.requests()
            self._rates = self._job.registration.rates()
            totals = torch.tensor([float(leaves), float(saves), step.loss * weight, self._rates], dtype=torch.float64, device=round_.device)
            self._totals = round_.all_reduce(totals)
            self._may_rebuild_buckets = not self.model._has_rebuilt_buckets
        return summed


@torch.no_grad()
def _take_buffers_of_rank_0(round_: Round, buffers: dict[str, torch.Tensor]) -> None:
    """Before a forward pass, as DistributedDataParallel would: those of BatchNorm, for example."""
    sent = torch.cat([each.reshape(-1).contiguous().view(torch.uint8) for each in buffers.values()])
    round_.broadcast(sent, source=0)
    if round_.rank == 0:
        return
    for each, received in zip(buffers.values(), sent.split([each.numel() * each.element_size() for each in buffers.values()])):
        each.copy_(received.clone().view(each.dtype).view(each.shape))  # a copy, because a view needs an aligned begin
