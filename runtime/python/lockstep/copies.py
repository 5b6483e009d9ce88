"""A copy of each rank's part of a checkpoint in the memory of another pod, sent while training continues. It serves when that pod is lost.

The pods form a ring. A rank sends to one of the next pod and receives from one of the pod before.
"""
from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import pickle
import socket
import typing

import torch
import torch.distributed as dist

from lockstep.memory import File, Segment

_PIECE_BYTES = 16 << 20
_LIMIT = datetime.timedelta(minutes=5)


@dataclasses.dataclass
class Partners:
    send_to: int
    receive_from: list[int]


def pod() -> str:
    """Of this rank; ranks with the same one may lose their memory together."""
    return os.environ.get("GROUP_RANK", "") + "@" + socket.gethostname()


def partners_of(pods: typing.Sequence[str]) -> list[Partners] | None:
    """For each rank, by the pods of all ranks. None: there is one pod only.

    >>> partners_of(["a", "a", "b", "b"])[0]
    Partners(send_to=2, receive_from=[2])
    """
    ranks: dict[str, list[int]] = {}
    for rank, name in enumerate(pods):
        ranks.setdefault(name, []).append(rank)
    if len(ranks) == 1:
        return None
    names = list(ranks)
    found = [Partners(-1, []) for _ in pods]
    for index, name in enumerate(names):
        following = ranks[names[(index + 1) % len(names)]]
        for position, rank in enumerate(ranks[name]):
            to = following[position % len(following)]
            found[rank].send_to = to
            found[to].receive_from.append(rank)
    return found


@functools.lru_cache(maxsize=1)
def _group_of(world: typing.Any) -> typing.Any:
    return dist.new_group(backend="gloo", timeout=_LIMIT)


def group() -> typing.Any:
    """For copies alone, because they are sent by another thread than the one that trains. All ranks make it, by their first call."""
    return _group_of(dist.group.WORLD)


def exchange(segment: Segment, partners: Partners, step: int) -> None:
    """Adds the files of the partners to the segment, which is complete with those of this rank. RuntimeError: a partner is lost."""
    tag = step % (1 << 31)  # the copy of the checkpoint before may still be under way
    sent = _Sent(segment, partners.send_to, tag)
    received = [_Received(segment, source, tag) for source in partners.receive_from]
    sent.index()
    for each in received:
        each.index()
    sent.finish()
    count = max([sent.pieces, *(each.pieces for each in received)])
    for number in range(count):
        sent.begin(number)
        for each in received:
            each.take(number)
        sent.finish()
    segment.add({name: file for each in received for name, file in each.files.items()})


def _pieces(files: dict[str, File]) -> list[tuple[str, int, int]]:
    """(file, offset, length)"""
    return [(name, begin, min(_PIECE_BYTES, file.bytes - begin)) for name, file in files.items() for begin in range(0, file.bytes, _PIECE_BYTES)]


class _Sent:
    def __init__(self, segment: Segment, to: int, tag: int) -> None:
        self._segment, self._files, self._to, self._tag = segment, segment.files, to, tag
        self._pieces = _pieces(self._files)
        self._works: list[typing.Any] = []
        self._buffers: list[torch.Tensor] = []  # until they are sent

    @property
    def pieces(self) -> int:
        return len(self._pieces)

    def index(self) -> None:
        text = pickle.dumps(self._files)
        self._send(torch.tensor([len(text)]))
        self._send(torch.frombuffer(bytearray(text), dtype=torch.uint8))

    def begin(self, number: int) -> None:
        if number < len(self._pieces):
            name, begin, length = self._pieces[number]
            self._send(torch.frombuffer(bytearray(self._segment.read(name, begin, length)), dtype=torch.uint8))

    def finish(self) -> None:
        for work in self._works:
            work.wait()
        self._works, self._buffers = [], []

    def _send(self, tensor: torch.Tensor) -> None:
        self._buffers.append(tensor)
        self._works.append(dist.isend(tensor, self._to, group(), self._tag))


class _Received:
    def __init__(self, segment: Segment, source: int, tag: int) -> None:
        self._segment, self._source, self._tag = segment, source, tag
        self.files: dict[str, File] = {}
        self._pieces: list[tuple[str, int, int]] = []

    @property
    def pieces(self) -> int:
        return len(self._pieces)

    def index(self) -> None:
        length = self._receive(torch.zeros(1, dtype=torch.int64))
        announced: dict[str, File] = pickle.loads(self._receive(torch.empty(int(length), dtype=torch.uint8)).numpy().tobytes())
        self._pieces = _pieces(announced)
        self.files = {name: self._segment.reserve(file.bytes, file.sums) for name, file in announced.items()}

    def take(self, number: int) -> None:
        if number >= len(self._pieces):
            return
        name, begin, length = self._pieces[number]
        piece = self._receive(torch.empty(length, dtype=torch.uint8))
        self._segment.fill(self.files[name], begin, piece.numpy().data)

    def _receive(self, tensor: torch.Tensor) -> torch.Tensor:
        dist.recv(tensor, self._source, group(), self._tag)
        return tensor
