"""Which samples this rank reads: a pure function of seed, epoch and position, in C++ (runtime/data/sampler.h).

The global batch of a step does not depend on how many ranks there are; each rank reads its share of it. In an epoch each sample is used exactly
once, whatever happens to the ranks.
"""
from __future__ import annotations

import ctypes
import dataclasses
import time
import typing

import torch.utils._pytree
import torch.utils.data

from lockstep.errors import LockstepError
from lockstep.library import Plan, library

if typing.TYPE_CHECKING:
    from lockstep.job import Job


def size_of(dataset: torch.utils.data.Dataset[typing.Any]) -> int:
    """LockstepError: its samples cannot be divided."""
    if isinstance(dataset, torch.utils.data.IterableDataset):
        raise LockstepError("the samples of an IterableDataset have no positions, so they cannot be divided: use a data set with __len__ and __getitem__")
    size = len(dataset)  # type: ignore[arg-type]
    if size < 1:
        raise LockstepError("the data set is empty")
    return size


class SamplePlan:
    """The steps of a run over a data set.

    Examples:
        >>> plan = SamplePlan(size=10, global_batch_size=4, shuffle=False)
        >>> plan.steps_per_epoch, plan.ids(2)
        (3, [8, 9])
        >>> plan.ids(0, rank=1, world=2)
        [2, 3]
    """

    def __init__(self, size: int, global_batch_size: int, *, seed: int = 0, shuffle: bool = True, drop_last: bool = False) -> None:
        if global_batch_size < 1:
            raise LockstepError(f"global_batch_size must be at least 1, not {global_batch_size}")
        self._plan = Plan(size, global_batch_size, seed, shuffle, drop_last)
        self.steps_per_epoch: int = library().lockstep_steps_per_epoch(self._plan)

    def size(self, step: int) -> int:
        """The number of samples of the step over all ranks. The last step of an epoch may be smaller.

        Examples:
            >>> SamplePlan(size=10, global_batch_size=4).size(2)
            2
        """
        return int(library().lockstep_step_size(self._plan, step))

    def ids(self, step: int, rank: int = 0, world: int = 1) -> list[int]:
        """The samples that this rank reads in the step: none if there are more ranks than samples.

        Examples:
            >>> SamplePlan(size=10, global_batch_size=4, shuffle=False).ids(2, rank=0, world=2)
            [8]
        """
        begin, end = ctypes.c_int64(), ctypes.c_int64()
        library().lockstep_share(self.size(step), rank, world, begin, end)
        return self._ids(step, begin.value, end.value)

    def _ids(self, step: int, begin: int, end: int) -> list[int]:
        found = (ctypes.c_int64 * (end - begin))()
        library().lockstep_sample_ids(self._plan, step, begin, end, found)
        return list(found)


@dataclasses.dataclass
class Batch:
    """This rank's share of the global batch of a step."""

    data: typing.Any
    """What `collate` made of the samples."""
    ids: list[int]
    """Positions of the samples in the data set. Empty if there are more ranks than samples: `data` is then a sample that counts nothing."""
    weight: float
    """This rank's part of the global batch, from 0 to 1. Gradients are weighted by it."""
    global_size: int
    """Samples of the step over all ranks."""
    step: int
    """How many steps were finished before, over all loops."""
    epoch: int
    """Of this loop, from 0 on."""
    part: float = 1.0
    """Of a micro-batch: its part of this rank's share. Weights its mean loss."""
    is_last: bool = False
    """Of its epoch, or of the loop."""

    def micro_batches(self, size: int, at_least: int = 1) -> list[Batch]:
        """Parts of at most `size` samples, for accumulation of gradients (`Step.accumulate`). `part` of each weights its loss. `at_least` so many
        parts: where there are fewer samples, one of them is in several parts, and counts as one.

        Examples:
            >>> [micro.part for micro in batch.micro_batches(32)]  # of a share of 80 samples
            [0.4, 0.4, 0.2]
        """
        if size < 1:
            raise LockstepError(f"the size of a micro-batch must be at least 1, not {size}")
        count = max(1, len(self.ids))
        parts = []
        for begin in range(0, count, size):
            end = min(begin + size, count)
            parts.append(dataclasses.replace(self, data=_part(self.data, begin, end), ids=self.ids[begin:end], part=(end - begin) / count))
        while len(parts) < at_least:
            parts[-1:] = parts[-1]._halves()
        return parts

    def _halves(self) -> list[Batch]:
        middle, end = len(self.ids) // 2, len(self.ids)
        if middle == 0:
            return 2 * [dataclasses.replace(self, part=self.part / 2)]
        return [dataclasses.replace(self, data=_part(self.data, begin, stop), ids=self.ids[begin:stop], part=self.part * (stop - begin) / end)
                for begin, stop in ((0, middle), (middle, end))]

    @property
    def inputs(self) -> typing.Any:
        """The first half of `data`, where a sample is a pair."""
        return self._half(0)

    @property
    def targets(self) -> typing.Any:
        """The second half of `data`, where a sample is a pair."""
        return self._half(1)

    def _half(self, index: int) -> typing.Any:
        if not isinstance(self.data, (list, tuple)) or len(self.data) != 2:
            raise LockstepError(f"a sample of this data set is not a pair of input and target but {type(self.data).__name__}: use `batch.data`")
        return self.data[index]


def _part(data: typing.Any, begin: int, end: int) -> typing.Any:
    """Samples of what a collate function has made: tensors are cut, containers of them element by element."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[begin:end], data)


class _Shares(torch.utils.data.Sampler[typing.List[int]]):
    """For a DataLoader: the ids of this rank's share of each step, from `next_step` on."""

    def __init__(self, plan: SamplePlan, first_step: int, last_step: int) -> None:
        self.plan, self.next_step, self.last_step = plan, first_step, last_step
        self.rank, self.world = 0, 1

    def __iter__(self) -> typing.Iterator[list[int]]:
        for step in range(self.next_step, self.last_step):
            # A rank without a share still runs its passes, because the others wait for it in the collectives.
            yield self.plan.ids(step, self.rank, self.world) or self.plan.ids(step)[:1]


class Batches:
    """Iterates over this rank's batches; begins again with the same step when a step was not finished, or the ranks have changed."""

    def __init__(self, job: Job, plan: SamplePlan, first: int, steps: int, loader: typing.Callable[[_Shares], typing.Iterable[typing.Any]]) -> None:
        self._job, self._plan, self._first, self._steps = job, plan, first, steps
        self._shares = _Shares(plan, 0, steps)
        self._loader = loader(self._shares)
        self._reading: typing.Iterator[typing.Any] | None = None
        self._reading_for: tuple[int, int] | None = None  # round and the next step that the loader reads for

    def __iter__(self) -> typing.Iterator[Batch]:
        job = self._job
        while True:
            job.enter_round()
            step = job.finished_steps - self._first  # of this loop
            if step >= self._steps:
                job.reports()  # the newest step, which may not have been due
                return
            with job.evaluations.in_loop():
                yield self._read(step)

    def _read(self, step: int) -> Batch:
        job, start = self._job, time.monotonic()
        if self._reading is None or self._reading_for != (job.round, step):
            self._shares.next_step, self._shares.rank, self._shares.world = step, job.rank, job.world
            self._reading = iter(self._loader)
        data = next(self._reading)
        self._reading_for = (job.round, step + 1)
        ids = self._plan.ids(step, job.rank, job.world)
        size = self._plan.size(step)
        epoch, ended = step // self._plan.steps_per_epoch, step + 1
        is_last = ended % self._plan.steps_per_epoch == 0 or ended == self._steps
        batch = Batch(data, ids, len(ids) / size, size, job.finished_steps, epoch, is_last=is_last)
        job.reads(batch, time.monotonic() - start)
        return batch
