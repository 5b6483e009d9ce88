"""What the integrations of training frameworks have in common: their DataLoader as one of shares, and what the framework must not do by itself."""
from __future__ import annotations

import contextlib
import copy
import typing

import torch

from lockstep.batches import Batch, SamplePlan, size_of
from lockstep.errors import LockstepError
from lockstep.job import Job

_KEPT = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "persistent_workers")
_ORDERS = {"RandomSampler": True, "SeedableRandomSampler": True, "SequentialSampler": False}


def arguments_of(loader: torch.utils.data.DataLoader[typing.Any]) -> dict[str, typing.Any]:
    """For a DataLoader that reads other batches in the same manner."""
    return {name: getattr(loader, name) for name in _KEPT}


def reads_each_sample_once(loader: torch.utils.data.DataLoader[typing.Any]) -> bool:
    return not isinstance(loader.dataset, torch.utils.data.IterableDataset) and _sampler(loader) in _ORDERS


def _sampler(loader: torch.utils.data.DataLoader[typing.Any]) -> str:
    return type(getattr(loader.batch_sampler, "sampler", None)).__name__


class CollateMicroBatches:
    """For a DataLoader whose batches are lists of micro-batches: each is collated alone, as the framework would have it."""

    def __init__(self, collate: typing.Callable[[list[typing.Any]], typing.Any], size: int) -> None:
        self._collate, self._size = collate, size

    def __call__(self, samples: list[typing.Any]) -> list[typing.Any]:
        return [self._collate(samples[begin:begin + self._size]) for begin in range(0, len(samples), self._size)]


class ShareLoader:
    """What a framework iterates over, epoch by epoch: this rank's share of each step, until the step is finished."""

    def __init__(self, loader: torch.utils.data.DataLoader[typing.Any], *, global_batch_size: int, micro_batch_size: int, seed: int, drop_last: bool) -> None:
        self._samples = size_of(loader.dataset)
        sampler = _sampler(loader)
        if sampler not in _ORDERS:
            raise LockstepError(f"the order of a {sampler} cannot be divided among ranks: only that of {' and '.join(_ORDERS)} can")
        self.dataset, self._micro_batch_size = loader.dataset, micro_batch_size
        self._order: dict[str, typing.Any] = {
            "global_batch_size": global_batch_size, "seed": seed, "shuffle": _ORDERS[sampler], "drop_last": drop_last}
        self._arguments = arguments_of(loader)
        self._arguments["collate_fn"] = CollateMicroBatches(loader.collate_fn, micro_batch_size)
        self._steps_per_epoch = SamplePlan(self._samples, **self._order).steps_per_epoch
        self._job: Job | None = None

    def begin(self, job: Job, steps: int) -> None:
        self._job = job
        job.evaluations.by_framework = True
        self._batches = iter(job.batches(self.dataset, steps=steps, **self._order, **self._arguments))

    def expect_same(self, order: dict[str, typing.Any]) -> None:
        if order != self.order:
            raise ValueError(f"samples and order are {self.order} here and {order} there")

    @property
    def order(self) -> dict[str, typing.Any]:
        """What must be equal on all ranks."""
        return {"samples": self._samples, **self._order}

    def read(self) -> Batch | None:
        """The batch of the next step, whose data are micro-batches; None after the last one."""
        return next(self._batches, None)

    def micro_batches(self, batch: Batch) -> typing.Iterator[tuple[typing.Any, float, bool]]:
        """Each with its part of this rank's share, and whether it is the last one."""
        samples = max(1, len(batch.ids))
        for position, micro_batch in enumerate(batch.data):
            size = min(self._micro_batch_size, samples - position * self._micro_batch_size)
            yield micro_batch, size / samples, position == len(batch.data) - 1

    def __len__(self) -> int:
        return self._steps_per_epoch

    def of_epoch(self, epoch: int, counted: typing.Callable[[], int]) -> typing.Iterator[Batch]:
        """The batches of the steps that the framework has not counted; none if the epoch is over. Without data for each step whose update has arrived from
        another rank: the others have continued while this one could not be reached."""
        job, end = self._job, (epoch + 1) * self._steps_per_epoch
        assert job is not None
        while True:
            if counted() < min(job.finished_steps, end):
                yield Batch(data=[], ids=[], weight=0.0, global_size=0, step=counted(), epoch=epoch)
            elif job.finished_steps >= end:
                return
            elif (batch := self.read()) is None:
                if counted() >= job.finished_steps:
                    return
            elif batch.step <= counted():  # else read again after those that are missing
                yield batch


class Schedule:
    """The learning rates of a finished step. The framework of a rank that has received them steps its schedulers once more."""

    def __init__(self, optimizer: torch.optim.Optimizer, schedulers: typing.Sequence[typing.Any]) -> None:
        self._groups, self._schedulers = optimizer.param_groups, schedulers
        self._rates = [group["lr"] for group in self._groups]
        self._states = [copy.deepcopy(each.state_dict()) for each in schedulers]

    def restore(self) -> None:
        for each, state in zip(self._schedulers, self._states):
            each.load_state_dict(copy.deepcopy(state))
        for group, rate in zip(self._groups, self._rates):
            group["lr"] = rate


@contextlib.contextmanager
def does_nothing(owner: typing.Any, method: str) -> typing.Iterator[None]:
    """Meanwhile this method of this object."""
    before = vars(owner).get(method)
    setattr(owner, method, lambda *_, **__: None)
    try:
        yield
    finally:
        delattr(owner, method)
        if before is not None:
            setattr(owner, method, before)


def without_sync(job: Job, is_last: bool) -> contextlib.AbstractContextManager[None]:
    """For a micro-batch: gradients are added up over the ranks in the backward pass of the last one."""
    if is_last or not isinstance(job.model, torch.nn.parallel.DistributedDataParallel):
        return contextlib.nullcontext()
    return job.model.no_sync()
