"""Finds and reads the newest checkpoint that is not damaged: from memory of this pod, from that of another rank, or from the storage."""
from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import os
import pathlib
import pickle
import typing
import weakref

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem

from lockstep import copies, storing
from lockstep.memory import BLOCK, Segment, segments, sums_of
from lockstep.saved_tensor import read_into
from lockstep.storage import Storage, storage_at
from lockstep.storing import METADATA

_PIECE_BYTES = 64 << 20
log = logging.getLogger("lockstep")


class Reader(FileSystemReader):
    """Reads the newest checkpoint below the folder, of `at_most` so many steps. To be made by all ranks; `no_dist`: by this one alone.

    Each file comes from the memory of a rank of this pod, else from that of another rank, else from the storage. What is damaged in memory is
    not used; OSError names what is damaged in the storage.

    Examples:
        >>> reader = checkpoint.Reader("/checkpoints")
        >>> if reader.step is not None:
        ...     dcp.load(state, storage_reader=reader)
    """

    step: int | None
    """Of the checkpoint; None: there is none."""

    def __init__(self, folder: str | os.PathLike[str], *, at_most: int | None = None, no_dist: bool = False) -> None:
        self._storage = storage_at(str(folder))
        alone = no_dist or not dist.is_initialized() or dist.get_world_size() == 1
        self._group = None if alone else _cpu_group()
        self._rank = 0 if alone else dist.get_rank()
        self._received: dict[str, bytes] = {}
        self._here: dict[str, Segment] = {}  # by the name of a file: the memory of this process, or of another one of the same pod
        self._holders: dict[str, int] = {}  # the rank that has it in memory
        everyones = self._gather(_Holding.of(self._storage, lists=self._rank == 0))
        self.step, coordinator = self._choose(everyones, at_most)
        super().__init__(str(self._storage.path_of(self.step or 0)))
        self.fs = _Tiers(self)
        self._stored: dict[str, int] = {} if self.step is None else everyones[0].stored.get(self.step, {})
        if self.step is not None:
            self._find(everyones, self.step, coordinator)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> torch.futures.Future[None]:
        self._receive({self.storage_data[item.storage_index].relative_path for item in plan.items})
        others = [item for item in plan.items if not self._reads_straight(item, planner)]
        return super().read_data(dataclasses.replace(plan, items=others), planner)

    def _reads_straight(self, item: ReadItem, planner: LoadPlanner) -> bool:
        """From the memory of this pod into the tensor of the state; a small one takes as long by torch.load."""
        place = self.storage_data[item.storage_index]
        segment = self._here.get(place.relative_path)
        if segment is None or item.type is LoadItemType.BYTE_IO or place.length < BLOCK or getattr(place, "transform_descriptors", None):
            return False
        target = planner.resolve_tensor(item).detach()
        if not read_into(target, segment.open(place.relative_path, place.offset, place.length), item.storage_offsets):
            return False
        planner.commit_tensor(item, target)
        return True

    def segment_of(self, name: str) -> Segment | None:
        """The memory that it is in, which this process can read."""
        return self._here.get(name)

    def received(self, name: str) -> bytes | None:
        return self._received.get(name)

    def stored(self, name: str) -> typing.ContextManager[io.IOBase]:
        assert self.step is not None
        return storing.opened(self._storage, self.step, name, self._stored)

    def _gather(self, mine: typing.Any) -> list[typing.Any]:
        if self._group is None:
            return [mine]
        everyones = [None] * dist.get_world_size()
        dist.all_gather_object(everyones, mine, group=self._group)
        return everyones

    def _choose(self, everyones: list[_Holding], at_most: int | None) -> tuple[int | None, int | None]:
        """As _newest, of what is not damaged. Each rank verifies only what it has of the checkpoint that is read."""
        while True:
            step, coordinator = _newest(everyones, at_most)
            if step is None:
                return None, None
            mine = everyones[self._rank].segment(step)
            are_sound = self._gather(mine is None or _is_sound(mine, set(mine.files)))
            if all(are_sound):
                return step, coordinator
            for holding, is_sound in zip(everyones, are_sound):
                if not is_sound:
                    holding.forget(step)

    def _find(self, everyones: list[_Holding], step: int, coordinator: int | None) -> None:
        """Where the files of the checkpoint are in memory."""
        for rank, holding in enumerate(everyones):
            segment = holding.segment(step)
            for name in holding.files.get(step, {}):
                if name == METADATA and rank != coordinator:  # None: all of it is stored, by another save than that in memory
                    continue
                self._holders.setdefault(name, rank)
                if segment is not None:
                    self._here[name] = segment
        if coordinator is not None:
            self._receive({METADATA})

    def _receive(self, needed: set[str]) -> None:
        """What is in the memory of ranks of other pods, and sends what those need of this rank."""
        if self._group is None:
            return
        wanted = self._gather({name for name in needed if name in self._holders and name not in self._here})
        for name in sorted(set().union(*wanted)):
            source = self._holders[name]
            for rank in (rank for rank, names in enumerate(wanted) if name in names):
                if self._rank == source:
                    self._send(name, rank)
                elif self._rank == rank:
                    self._received[name] = self._take(name, source)

    def _send(self, name: str, to: int) -> None:
        segment = self.segment_of(name)
        assert segment is not None
        file = segment.files[name]
        dist.send_object_list([file.bytes, file.sums], dst=to, group=self._group)
        for begin in range(0, file.bytes, _PIECE_BYTES):
            piece = bytearray(segment.read(name, begin, _PIECE_BYTES))
            dist.send(torch.frombuffer(piece, dtype=torch.uint8), dst=to, group=self._group)

    def _take(self, name: str, source: int) -> bytes:
        head: list[typing.Any] = [0, []]
        dist.recv_object_list(head, src=source, group=self._group)
        length, sums = head
        data = bytearray(length)
        for begin in range(0, length, _PIECE_BYTES):
            dist.recv(torch.frombuffer(data, dtype=torch.uint8, offset=begin, count=min(_PIECE_BYTES, length - begin)), src=source, group=self._group)
        view = memoryview(data)
        if sums_of(lambda offset, count: view[offset:offset + count], length) != sums:
            raise OSError(f"{name} of rank {source} was damaged on its way")
        return bytes(data)


@dataclasses.dataclass
class _Holding:
    """What a rank has of the checkpoints of a folder: step -> name -> bytes."""

    files: dict[int, dict[str, int]]
    complete: dict[int, dict[str, int]]  # of the steps of which it has the metadata: all files of the checkpoint
    stored: dict[int, dict[str, int]]
    paths: dict[int, str]  # of the segments, for processes of the same pod
    pod: str

    @staticmethod
    def of(storage: Storage, lists: bool) -> _Holding:
        held = _Holding({}, {}, storage.steps() if lists else {}, {}, copies.pod())
        for segment in segments():
            if segment.folder != storage.uri:
                continue
            if not segment.wait():
                log.warning("the checkpoint of step %d in memory is not used: its save has failed", segment.step)
                continue
            if METADATA in segment.files and not _is_sound(segment, {METADATA}):
                continue
            held.files[segment.step] = segment.lengths()
            held.paths[segment.step] = segment.path
            if METADATA in segment.files:
                content = segment.read(METADATA, 0, segment.files[METADATA].bytes)
                held.complete[segment.step] = storing.lengths_of(pickle.loads(content).storage_data.values())
        return held

    def segment(self, step: int) -> Segment | None:
        """None: this process cannot read it, as it is in another pod."""
        path = self.paths.get(step) if self.pod == copies.pod() else None
        found = next((each for each in segments() if each.path == path), None) or (None if path is None else _opened(path))
        return found if found is not None and (found.step, found.lengths()) == (step, self.files[step]) else None

    def forget(self, step: int) -> None:
        """What is in memory."""
        self.files.pop(step, None)
        self.complete.pop(step, None)
        self.paths.pop(step, None)


def _newest(everyones: list[_Holding], at_most: int | None) -> tuple[int | None, int | None]:
    """The step to read, and the rank that has its metadata in memory; None: it is stored."""
    stored = everyones[0].stored
    steps = {step for holding in everyones for step in holding.complete} | {step for step, files in stored.items() if METADATA in files}
    for step in sorted((step for step in steps if at_most is None or step <= at_most), reverse=True):
        there = set(stored.get(step, {}).items()).union(*(holding.files.get(step, {}).items() for holding in everyones))
        for rank, holding in enumerate(everyones):
            if step in holding.complete and holding.complete[step].items() <= there:
                return step, rank
        if METADATA in stored.get(step, {}):
            return step, None
    return None, None


def _is_sound(segment: Segment, names: set[str]) -> bool:
    damage = segment.damage(names)
    if damage is not None:
        log.warning("the checkpoint of step %d in memory is not used: %s", segment.step, damage)
    return damage is None


def _opened(path: str) -> Segment | None:
    """The memory of another process of this pod."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    segment = Segment(file)
    weakref.finalize(segment, os.close, file)
    return segment


class _Tiers(FileSystem):
    """Where a file of the checkpoint is: in memory, received, or stored."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> typing.Generator[io.IOBase, None, None]:
        name = pathlib.Path(path).name
        segment, received = self._reader.segment_of(name), self._reader.received(name)
        if segment is not None:
            yield io.BufferedReader(segment.open(name), BLOCK)
        elif received is not None:
            yield io.BytesIO(received)
        else:
            with self._reader.stored(name) as stream:
                yield stream


def _cpu_group() -> typing.Any:
    return dist.group.WORLD if "gloo" in dist.get_backend() else dist.new_group(backend="gloo")
