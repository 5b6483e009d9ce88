"""Storage for torch.distributed.checkpoint (DCP): checkpoints of any state in memory first, stored in a folder or bucket while training continues.

    import torch.distributed.checkpoint as dcp
    from lockstep import checkpoint

    dcp.save(state, storage_writer=checkpoint.Writer("/checkpoints", step))     # waits for one copy
    ...
    reader = checkpoint.Reader("/checkpoints")                                  # the newest, in memory or stored
    if reader.step is not None:
        dcp.load(state, storage_reader=reader)

The memory is that of memory.py: a process that is started again finds it. What is stored has DCP's own format, so its readers read it, and
`Reader` reads what they have written.
"""
from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import logging
import math
import os
import pathlib
import pickle
import threading
import typing
import uuid
import weakref

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult

from lockstep import copies as other_pods
from lockstep import storing
from lockstep.errors import LockstepError
from lockstep.library import library
from lockstep.memory import BLOCK, Segment, segments, sums_of
from lockstep.storage import Folder, Storage, storage_at

METADATA = ".metadata"  # DCP's: a checkpoint is stored when this is
_PIECE_BYTES = 64 << 20
_SHARE = 1.25  # of the memory that a checkpoint needs, for what torch.save adds and what else the processes take meanwhile
log = logging.getLogger("lockstep")


class _Mode(enum.Enum):
    STORE = "in memory, then stored"
    MEMORY = "in memory only: the last one is still being stored"
    AT_ONCE = "stored, for which training waits: the memory does not fit"


@dataclasses.dataclass
class _Offer:
    """What a rank reports before a save."""

    is_storing: bool
    fits: bool
    pod: str


@dataclasses.dataclass
class _Order:
    """What the coordinator has decided for all ranks."""

    prefix: typing.Any
    mode: _Mode
    partners: other_pods.Partners | None


class Writer(FileSystemWriter):
    """Saves the state after `step` steps. To be made for each save, by all ranks.

    `folder`: a folder, or a URI such as s3://bucket/run (storage.py). `keep`: how many checkpoints stay there. `stores`: False keeps it in memory
    only. `copies`: 2 keeps each part in the memory of another pod, too, as long as there are several pods. `on_stored` is called with the URI of the checkpoint when all of it is stored, usually on a thread of its own, on the rank that coordinates.
    """

    def __init__(self, folder: str | os.PathLike[str], step: int, *, keep: int = 3, stores: bool = True, copies: int = 1,
                 on_stored: typing.Callable[[str], None] | None = None) -> None:
        self._storage = storage_at(str(folder))
        if copies not in (1, 2):
            raise LockstepError(f"copies must be 1 or 2, not {copies}")
        self._step, self._stores, self._copies = step, stores, copies
        self._keep, self._on_stored = keep, on_stored
        self._mode = _Mode.AT_ONCE
        self._segment: Segment | None = None
        self._partners: other_pods.Partners | None = None
        self._coordinates = False
        super().__init__(str(self._storage.path_of(step)), sync_files=False)

    def set_up_storage_writer(self, is_coordinator: bool, *arguments: typing.Any, **more: typing.Any) -> None:
        super().set_up_storage_writer(is_coordinator, *arguments, **more)
        self._coordinates = is_coordinator
        if self._copies > 1 and dist.is_initialized():
            other_pods.group()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return dataclasses.replace(plan, storage_data=_Offer(storing.is_busy(), fits(self._copies * sum(map(_size, plan.items))), other_pods.pod()))

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        offers = [plan.storage_data for plan in plans]
        if not all(offer.fits for offer in offers):
            mode = _Mode.AT_ONCE
        elif not self._stores or any(offer.is_storing for offer in offers):
            mode = _Mode.MEMORY
        else:
            mode = _Mode.STORE
        planned = super().prepare_global_plan([dataclasses.replace(plan, storage_data=None) for plan in plans])
        attempt = uuid.uuid4().hex[:8]  # a save that is repeated does not overwrite what may be read
        partners = other_pods.partners_of([offer.pod for offer in offers]) if self._copies > 1 else None
        for plan in planned:
            plan.storage_data.prefix += f"{attempt}_"
        return [dataclasses.replace(plan, storage_data=_Order(plan.storage_data, mode, None if partners is None else partners[rank]))
                for rank, plan in enumerate(planned)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        self._mode, self._partners = plan.storage_data.mode, plan.storage_data.partners
        plan = dataclasses.replace(plan, storage_data=plan.storage_data.prefix)
        if self._mode is _Mode.AT_ONCE:
            log.warning("the checkpoint of step %d does not fit into the memory that is left, so training waits until it is stored", self._step)
            self.fs, self.sync_files = self._storage.file_system, isinstance(self._storage, Folder)
            self.fs.mkdir(self.path)
            return super().write_data(plan, planner)
        self._segment = _free_segment()
        self._segment.begin(self._storage.uri, self._step)
        self.fs = _Memory(self._segment)
        with _no_checksum_by_pytorch():
            written = super().write_data(plan, planner)
        if not self._coordinates:
            self._begin_storing(None)
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        if self._mode is not _Mode.AT_ONCE:
            self._begin_storing(_lengths(metadata))
            return
        storing.remove_others(self._storage, self._step, _lengths(metadata), self._keep)
        if self._on_stored is not None:
            self._on_stored(self._storage.uri_of(self._step))

    def _begin_storing(self, files: dict[str, int] | None) -> None:
        assert self._segment is not None
        save = storing.Save(self._segment, self._storage, self._step, files, self._keep, self._partners, self._on_stored)
        storing.begin(save, self._mode is _Mode.STORE, self._stores)


class Reader(FileSystemReader):
    """Reads the newest checkpoint below the folder, of `at_most` so many steps. To be made by all ranks; `no_dist`: by this one alone.

    Each file comes from the memory of a rank of this pod, else from that of another rank, else from the storage. What is damaged in memory is
    not used; OSError names what is damaged in the storage.
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
        return super().read_data(plan, planner)

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
        held = _Holding({}, {}, storage.steps() if lists else {}, {}, other_pods.pod())
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
                held.complete[segment.step] = _lengths(pickle.loads(content))
        return held

    def segment(self, step: int) -> Segment | None:
        """None: this process cannot read it, as it is in another pod."""
        path = self.paths.get(step) if self.pod == other_pods.pod() else None
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


class _Memory(FileSystem):
    """A segment as a folder."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> typing.Generator[io.IOBase, None, None]:
        yield self._segment.create(pathlib.Path(path).name)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self._segment.rename(pathlib.Path(path).name, pathlib.Path(new_path).name)

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return pathlib.Path(path).name in self._segment.files


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


def fits(tensor_bytes: int) -> bool:
    """Whether there is memory for a checkpoint of so many bytes."""
    available: float = library().lockstep_available_memory()
    return available < 0 or _SHARE * tensor_bytes - _free_segment().allocated() < available


def _free_segment() -> Segment:
    """Not that of the newest checkpoint, nor one that is being stored."""
    return min((each for each in segments() if not storing.uses(each)), key=lambda each: each.step if each.completed.is_set() else -1)


def _size(item: WriteItem) -> int:
    if item.tensor_data is None:
        return 0
    return math.prod(item.tensor_data.chunk.sizes) * torch.empty(0, dtype=item.tensor_data.properties.dtype).element_size()


def _lengths(metadata: Metadata) -> dict[str, int]:
    """How long each file of the checkpoint is."""
    lengths: dict[str, int] = {}
    for place in (metadata.storage_data or {}).values():
        lengths[place.relative_path] = max(lengths.get(place.relative_path, 0), place.offset + place.length)
    return lengths


def _cpu_group() -> typing.Any:
    return dist.group.WORLD if "gloo" in dist.get_backend() else dist.new_group(backend="gloo")


@contextlib.contextmanager
def _no_checksum_by_pytorch() -> typing.Generator[None, None, None]:
    """That of torch.save takes longer than the copy; the segment has its own. PyTorch before 2.6 has no such option."""
    serialization = torch.serialization
    if not hasattr(serialization, "set_crc32_options"):
        yield
        return
    before = serialization.get_crc32_options()
    serialization.set_crc32_options(False)
    try:
        yield
    finally:
        serialization.set_crc32_options(before)
