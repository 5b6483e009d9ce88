"""Logs of the pods of a job, by rank."""
from __future__ import annotations

import contextlib
import datetime
import math
import time
import typing

from lockstep.client.kube import Kube, Refused, Unreachable
from lockstep.client.manifest import CONTAINER, Object
from lockstep.client.progress import is_finished
from lockstep.client.rank_lines import Place, may_be_of, newest_places
from lockstep.errors import LockstepError

_SELECTOR = "app.kubernetes.io/name=lockstep-worker,lockstep.dev/job="  # as in runtime/common/api/names.h
# A supervisor logs the place of each rank once in a round, and little else; lines of a program have their rank in front.
_SEARCHED_LINES = 2000
_PAUSE = 1.0


class PodLogs:
    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def read(self, job: Object, rank: int) -> typing.Iterator[str]:
        found = self._find(job, rank)
        if found is None:
            raise LockstepError(_not_placed(job, rank))
        pod, place = found
        return (line for line in self._kube.log(pod["metadata"]["name"], _container(job)) if may_be_of(line, place))

    def follow(self, changes: typing.Iterable[Object], rank: int) -> typing.Iterator[str]:
        """Until the job has ended: another pod that gets the rank is followed after the one before."""
        followed: set[str] = set()
        for job in changes:
            found = None
            with contextlib.suppress(Unreachable):  # it is looked for again when the API server is back
                found = self._find(job, rank)
            if found is not None and found[0]["metadata"]["uid"] not in followed:
                pod, place = found
                followed.add(pod["metadata"]["uid"])
                yield from (line for line in self._stream(pod, _container(job)) if may_be_of(line, place))
            if is_finished(job.get("status", {})):
                if not followed:
                    raise LockstepError(_not_placed(job, rank))
                return

    def _find(self, job: Object, rank: int) -> tuple[Object, Place] | None:
        """The pod that had the rank in the newest round of which a log says so."""
        best: tuple[Object, Place] | None = None
        newest = job.get("status", {}).get("rendezvous", {}).get("round", math.inf)
        for pod in self._kube.list_pods(_SELECTOR + job["metadata"]["name"]):
            try:
                lines = self._kube.log(pod["metadata"]["name"], _container(job), tail=_SEARCHED_LINES)
            except Refused:
                continue  # its container has not started
            place = newest_places(lines).get(rank)
            if place is not None and (best is None or place.round > best[1].round):
                best = pod, place
            if best is not None and best[1].round >= newest:
                break
        return best

    def _stream(self, pod: Object, container: str) -> typing.Iterator[str]:
        """Until the container has ended; continues where a connection broke."""
        last, since = ("", ""), None
        while True:
            with contextlib.suppress(Unreachable):
                try:
                    for line in self._kube.follow_log(pod["metadata"]["name"], container, since):
                        stamp, _, text = line.partition(" ")
                        if _comparable(stamp) > last:
                            last = _comparable(stamp)
                            yield text
                except Refused:
                    return  # the pod is gone
                if not self._runs(pod, container):
                    return
            since = _seconds_since(last[0])
            time.sleep(_PAUSE)

    def _runs(self, pod: Object, container: str) -> bool:
        for each in self._kube.list_pods(_SELECTOR + pod["metadata"]["labels"]["lockstep.dev/job"]):
            if each["metadata"]["uid"] == pod["metadata"]["uid"]:
                statuses = each.get("status", {}).get("containerStatuses", [])
                return any(status["name"] == container and "running" in status.get("state", {}) for status in statuses)
        return False


def _container(job: Object) -> str:
    return str(job["spec"]["worker"].get("containerName", CONTAINER))


def _not_placed(job: Object, rank: int) -> str:
    name, status = job["metadata"]["name"], job.get("status", {})
    world = status.get("rendezvous", {}).get("worldSize", 0)
    why = f": its ranks are 0 to {world - 1}" if 0 < world <= rank else f" (it is {status.get('state', 'Created')})"
    return f"no pod of {name} has logged rank {rank}{why}"


def _comparable(stamp: str) -> tuple[str, str]:
    """Seconds and their fraction: containerd leaves zeros at its end out."""
    seconds, _, fraction = stamp.partition(".")
    return seconds, fraction.rstrip("Z").ljust(9, "0")


def _seconds_since(stamp: str) -> int | None:
    """Of a log's time without fraction; some more, because clocks differ. Lines that come twice are left out by their times."""
    if not stamp:
        return None
    then = datetime.datetime.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return max(1, int((datetime.datetime.now(datetime.timezone.utc) - then).total_seconds()) + 60)
