"""A job that has been submitted."""
from __future__ import annotations

import contextlib
import datetime
import math
import time
import typing

from lockstep.client.backend import Backend
from lockstep.client.manifest import Object
from lockstep.client.progress import ProgressLine, condition
from lockstep.errors import JobFailed, LockstepError

_CHECKPOINT_SECONDS = 300.0


class TrainingJob:
    """What `Client.submit` and `Client.job` return. Names are those of the resource and of `kubectl lockstep`."""

    def __init__(self, name: str, backend: Backend) -> None:
        self.name = name
        self._backend = backend

    def __repr__(self) -> str:
        return f"TrainingJob({self.name!r})"

    def status(self) -> Object:
        """`status` of the DistributedTrainingJob: state, conditions, progress, checkpoint, goodput, restarts.

        Examples:
            >>> job.status()["state"]
            'Running'
        """
        return typing.cast(Object, self._backend.get(self.name).get("status", {}))

    def metrics(self) -> dict[str, typing.Any]:
        """The newest numbers: step, totalSteps, epoch, loss, samplesPerSecond, evaluation; round, worldSize; goodput.

        Examples:
            >>> job.metrics()["loss"]
            2.31
        """
        status = self.status()
        goodput = {"goodput": status["goodput"]["ratio"]} if "ratio" in status.get("goodput", {}) else {}
        return {**status.get("progress", {}), **status.get("rendezvous", {}), **goodput}

    def newest_checkpoint(self) -> dict[str, typing.Any] | None:
        """step, time and uri of the newest complete one. Of a program of your own with observability.checkpointFolder.

        Examples:
            >>> job.newest_checkpoint()["uri"]
            's3://bucket/run/step-000000001200'
        """
        return self.status().get("checkpoint")

    def wait(self, timeout: float | None = None, progress: bool = True) -> None:
        """Until the job is complete; shows its progress. Raises JobFailed, or TimeoutError after so many seconds, and the job continues.

        Examples:
            >>> job.wait(timeout=3600)
        """
        line = ProgressLine(self.name, progress)
        with contextlib.closing(self._backend.changes(self.name, _deadline(timeout), line.say)) as changes, contextlib.closing(line):
            for job in changes:
                status = job.get("status", {})
                line.show(status)
                if has_ended(self.name, status):
                    return

    def logs(self, rank: int = 0, follow: bool = False) -> typing.Iterator[str]:
        """Lines of the pod that had the rank last, without those of other ranks. `follow`: new lines, too, until the job has ended.

        Examples:
            >>> for line in job.logs(rank=3, follow=True):
            ...     print(line)
        """
        return self._backend.logs(self.name, rank, follow)

    def suspend(self) -> None:
        """Saves a checkpoint and removes the pods; `resume` continues.

        Examples:
            >>> job.suspend()
        """
        self._backend.set_suspend(self.name, True)

    def resume(self) -> None:
        """Starts the pods of a suspended job again; the ranks continue from its newest checkpoint.

        Examples:
            >>> job.resume()
        """
        self._backend.set_suspend(self.name, False)

    def checkpoint(self, timeout: float | None = _CHECKPOINT_SECONDS) -> dict[str, typing.Any]:
        """Requests a checkpoint and waits until it is stored. A script must have called `lockstep.join` with `checkpoints`.

        Examples:
            >>> job.checkpoint()["step"]
            1200
        """
        job = self._backend.get(self.name)
        _expect_checkpoints(self.name, job)
        before = job.get("status", {}).get("checkpoint")
        requested = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        self._backend.request_checkpoint(self.name)
        with contextlib.closing(self._backend.changes(self.name, _deadline(timeout))) as changes:
            for each in changes:
                stored = each.get("status", {}).get("checkpoint")
                if stored and stored != before and _time(stored["time"]) >= requested:
                    return typing.cast("dict[str, typing.Any]", stored)
                if has_ended(self.name, each.get("status", {})):
                    break
        raise LockstepError(f"{self.name} ended before it saved the checkpoint")

    def delete(self) -> None:
        """The job, its pods and its script. Its checkpoints remain, unless spec.checkpoint.deleteWithJob is true.

        Examples:
            >>> job.delete()
        """
        self._backend.delete(self.name)


def has_ended(name: str, status: Object) -> bool:
    """Whether it is complete. Raises JobFailed."""
    failed = condition(status, "Failed")
    if failed:
        raise JobFailed(f"{name} failed ({failed.get('reason', '')}): {failed.get('message', '')}")
    return condition(status, "Complete") is not None


def _expect_checkpoints(name: str, job: Object) -> None:
    spec = job["spec"]
    if "training" in spec and "checkpoint" not in spec:
        raise LockstepError(f"{name} has no spec.checkpoint: there is no place to save to")
    if spec.get("suspend"):
        raise LockstepError(f"{name} is suspended: none of its pods runs")


def _deadline(timeout: float | None) -> float:
    return math.inf if timeout is None else time.monotonic() + timeout


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
