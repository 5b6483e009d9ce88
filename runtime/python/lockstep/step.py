"""One optimizer step of a job, as a transaction."""
from __future__ import annotations

import threading
import time
import traceback
import types
import typing

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

if typing.TYPE_CHECKING:
    from lockstep.batches import Batch
    from lockstep.job import Job


class Step:
    """What `Job.step` returns."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.number = 0
        """How many steps were finished before."""
        self.batch: Batch | None = None
        """If it comes from `Job.batches`."""
        self.loss = 0.0
        self.is_committed = False
        """After the block: whether the step counts. If not, the loop reads it again."""
        self.has_updated = False  # an optimizer has applied the gradients
        self.seconds: dict[str, float] = {}
        self._since = 0.0

    @property
    def samples(self) -> int:
        """How much this rank's share weighs."""
        return len(self.batch.ids) if self.batch is not None else 1

    def report(self, loss: torch.Tensor | float) -> None:
        """The mean loss of this rank's samples, for the job's status and metrics. Before `backward()`; later, the value is not used.

        Examples:
            >>> loss = loss_fn(job.model(batch.inputs), batch.targets)
            >>> step.report(loss)
            >>> loss.backward()
        """
        self.loss = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)

    def total(self, value: float) -> float:
        """The sum of a number over all ranks, each of which calls this at the same point of the step. With `average_every`, each rank gets its own.

        Examples:
            >>> tokens = step.total(float((batch.targets != -100).sum()))
        """
        return self._job.total(value)

    def mean_loss(self) -> float:
        """Of what the ranks have reported, weighted by their samples. After `backward()`. With `average_every`, each rank gets its own.

        Examples:
            >>> writer.add_scalar("loss", step.mean_loss(), step.number)
        """
        return self._job.mean_loss(self)

    def accumulate(self, batch: Batch, size: int) -> typing.Iterator[Batch]:
        """The micro-batches of the batch; gradients are added up over the ranks in the backward pass of the last one only.

        Examples:
            >>> with job.step() as step:
            ...     for micro in step.accumulate(batch, 32):
            ...         loss = loss_fn(job.model(micro.inputs), micro.targets) * micro.part
            ...         loss.backward()
            ...     optimizer.step()
        """
        return self._job.accumulate(batch, size)

    def __enter__(self) -> Step:
        self._job.progress.step_begins()
        self._since = time.monotonic()
        self._job.begins(self)
        self._thread, self._hook = threading.get_ident(), register_optimizer_step_pre_hook(self._before_update)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None) -> bool:
        self._hook.remove()
        if error is None:
            self._commit()
            return False
        if not self._job.survives(error):
            self._job.fails(error)
            return False
        if self.has_updated and not self._job.takes_back():  # with the update repeated, this rank would differ from the others
            self._commit()
        else:
            self._job.progress.repeated += 1
        traceback.clear_frames(trace)  # they refer to what must be dropped
        return True

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: typing.Any) -> None:
        if threading.get_ident() == self._thread:
            self._job.registration.expect(optimizer)

    def _commit(self) -> None:
        self.reaches("optimizer")
        self.is_committed = self._job.commits(self)

    def reaches(self, end: str) -> None:
        """Counts the time since the last call for the phase that ends now; of gradients of several buckets, the first ends the forward pass."""
        now = time.monotonic()
        phase = "forward" if end == "backward" and "forward" not in self.seconds else end
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
        self._since = now
