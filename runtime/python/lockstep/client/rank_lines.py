"""Which pod has a rank, and which lines of its log are of that rank: as in runtime/tools/kubectl_plugin/rank_places.h."""
from __future__ import annotations

import dataclasses
import json
import re
import typing

_PREFIX = re.compile(r"\[rank (\d+) round (\d+)\] ")
_LOCAL_PREFIX = re.compile(r"\[local rank (\d+)")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a rank was last."""

    round: int
    rank: int
    local_rank: int | None = None  # where the line has it


def place_in(line: str) -> Place | None:
    """A line of a rank's output has its rank in front; the supervisor logs the place of each rank once in a round."""
    prefix = _PREFIX.match(line)
    if prefix:
        return Place(round=int(prefix[2]), rank=int(prefix[1]))
    record = _record(line)
    rank, round_ = record.get("rank"), record.get("round")
    if not isinstance(rank, int) or not isinstance(round_, int) or rank < 0 or round_ <= 0:
        return None
    return Place(round_, rank, _local_rank(record))


def newest_places(lines: typing.Iterable[str]) -> dict[int, Place]:
    """rank -> place, in the newest round of which these lines of one pod have something."""
    newest = 0
    found: dict[int, Place] = {}
    for place in filter(None, map(place_in, lines)):
        if place.round > newest:
            newest, found = place.round, {}
        if place.round == newest and (place.local_rank is not None or place.rank not in found):
            found[place.rank] = place
    return found


def may_be_of(line: str, wanted: Place) -> bool:
    """Lines without a rank, such as the supervisor's own, are of all."""
    place = place_in(line)
    if place is not None:
        return place.rank == wanted.rank
    prefix = _LOCAL_PREFIX.match(line)
    local_rank = int(prefix[1]) if prefix else _local_rank(_record(line))
    return local_rank is None or wanted.local_rank is None or local_rank == wanted.local_rank


def _record(line: str) -> dict[str, typing.Any]:
    if not line.startswith("{"):
        return {}
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _local_rank(record: dict[str, typing.Any]) -> int | None:
    """The supervisor writes it as a number, ranks write it as a text."""
    found = record.get("local_rank")
    return int(found) if isinstance(found, int) or (isinstance(found, str) and found.isdigit()) else None
