"""Saves checkpoints: the part of this rank into its memory, then into the storage while training continues."""
from __future__ import annotations

import contextlib
import dataclasses
import enum
import io
import logging
import math
import os
import pathlib
import typing
import uuid

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult

from lockstep import copies as other_pods
from lockstep import storing
from lockstep.errors import LockstepError
from lockstep.memory import Segment, segments
from lockstep.storage import Folder, storage_at

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

    `folder`: a folder, or a URI such as s3://bucket/run. `keep`: how many checkpoints stay there. `stores`: False keeps it in memory
    only. `copies`: 2 keeps each part in the memory of another pod, too, as long as there are several pods. `on_stored` is called with the URI of
    the checkpoint when all of it is stored, usually on a thread of its own, on the rank that coordinates.

    Examples:
        >>> dcp.save(state, storage_writer=checkpoint.Writer("/checkpoints", step, copies=2))
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
        # Not those of `metadata`: PyTorch 2.11 completes a copy of it.
        files = storing.lengths_of(result.storage_data for of_rank in results for result in of_rank)
        if self._mode is not _Mode.AT_ONCE:
            self._begin_storing(files)
            return
        if self._on_stored is not None:
            self._on_stored(self._storage.uri_of(self._step))
        storing.remove_others(self._storage, self._step, files, self._keep)

    def _begin_storing(self, files: dict[str, int] | None) -> None:
        assert self._segment is not None
        save = storing.Save(self._segment, self._storage, self._step, files, self._keep, self._partners, self._on_stored)
        storing.begin(save, self._mode is _Mode.STORE, self._stores)


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


def fits(tensor_bytes: int) -> bool:
    """Whether there is memory for a checkpoint of so many bytes."""
    return _free_segment().fits(tensor_bytes)


def _free_segment() -> Segment:
    """Not that of the newest checkpoint, nor one that is being stored."""
    return min((each for each in segments() if not storing.uses(each)), key=lambda each: each.step if each.completed.is_set() else -1)


def _size(item: WriteItem) -> int:
    if item.tensor_data is None:
        return 0
    return math.prod(item.tensor_data.chunk.sizes) * torch.empty(0, dtype=item.tensor_data.properties.dtype).element_size()


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
