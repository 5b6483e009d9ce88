"""Stores checkpoints from memory, on a thread while training continues; and what is stored of one.

    step-000000000120/
      __0_1f0c39a5_0.distcp                the file of a rank, as DCP has it
      __0_1f0c39a5_0.distcp.crc32.json     its length, and the CRC-32 of each of its blocks
      .metadata                            DCP's, written last: a checkpoint is stored when this is
"""
from __future__ import annotations

import atexit
import contextlib
import dataclasses
import io
import json
import logging
import threading
import time
import typing

from lockstep.copies import Partners, exchange
from lockstep.memory import BLOCK, Segment, allocate_all
from lockstep.storage import Storage

LONGEST_WAIT = 300.0
"""Seconds for the files of other ranks."""
_AT_THE_END = 10.0  # the same where this process ends
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
METADATA = ".metadata"  # DCP's: a checkpoint is stored when this is
_SUMS = ".crc32.json"
log = logging.getLogger("lockstep")


@dataclasses.dataclass
class Save:
    """A checkpoint in memory on its way to the storage."""

    segment: Segment
    storage: Storage
    step: int
    files: dict[str, int] | None  # of the whole checkpoint: name -> bytes; None: another rank coordinates
    keep: int
    partners: Partners | None  # in other pods
    on_stored: typing.Callable[[str], None] | None  # with the URI
    is_stored: bool = False  # what this rank stores of it


_being_stored: Save | None = None
_newest: Save | None = None  # stored when this process ends, if it is not by then


def is_busy() -> bool:
    return _being_stored is not None and _being_stored.segment.is_kept_by_a_thread()


def uses(segment: Segment) -> bool:
    return is_busy() and _being_stored is not None and _being_stored.segment is segment


def begin(save: Save, stores: bool, stores_at_the_end: bool) -> None:
    """Makes the checkpoint in memory complete, copies it to another pod, and stores it if `stores`, else when this process ends. By one thread."""
    global _being_stored, _newest
    # The interpreter waits for it at the end.
    save.segment.keeper = threading.Thread(target=_keep, args=(save, stores), name="lockstep-checkpoint")
    if stores:
        _being_stored = save
    if _newest is None and stores_at_the_end:
        atexit.register(_store_the_newest)
    _newest = save if stores_at_the_end else None
    save.segment.keeper.start()


def _keep(save: Save, stores: bool) -> None:
    try:
        save.segment.complete()
        allocate_all(save.segment.allocated())  # the next one is saved into the other segment
        if save.partners is not None:
            _copy(save, save.partners)
        if stores:
            _store(save, LONGEST_WAIT)
    except OSError as error:
        log.warning("the checkpoint of step %d is not stored: %s", save.step, error)


def _copy(save: Save, partners: Partners) -> None:
    try:
        exchange(save.segment, partners, save.step)
    except RuntimeError as error:
        log.warning("the checkpoint of step %d has no copy in another pod: %s", save.step, error)


def _store_the_newest() -> None:
    save = _newest
    if save is None or save.is_stored:
        return
    try:
        _store(save, _AT_THE_END)
    except OSError as error:
        log.warning("the checkpoint of step %d is not stored: %s", save.step, error)


def _store(save: Save, patience: float) -> None:
    for name in save.segment.own:
        if name != METADATA:
            _write(save, name)
    if save.files is None:
        save.is_stored = True
        return
    _wait_for(save, save.files, patience)
    _write(save, METADATA)
    save.is_stored = True
    if save.on_stored is not None:
        save.on_stored(save.storage.uri_of(save.step))
    remove_others(save.storage, save.step, save.files, save.keep)


def _write(save: Save, name: str) -> None:
    segment, file = save.segment, save.segment.files[name]
    sums = json.dumps({"bytes": file.bytes, "blockBytes": BLOCK, "blockCrc32": "".join(f"{each:08x}" for each in file.sums)}).encode()
    save.storage.write(save.step, name + _SUMS, lambda: [sums])
    save.storage.write(save.step, name, lambda: (segment.read(name, begin, BLOCK) for begin in range(0, file.bytes, BLOCK)))


def _wait_for(save: Save, files: dict[str, int], patience: float) -> None:
    deadline, pause = time.monotonic() + patience, _FIRST_PAUSE
    while missing := files.items() - save.storage.steps().get(save.step, {}).items():
        if time.monotonic() > deadline:
            raise OSError(f"other ranks have not stored {', '.join(sorted(name for name, _ in missing)[:3])} within {patience:g} s")
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)


def remove_others(storage: Storage, step: int, files: typing.Collection[str], keep: int) -> None:
    """When all `files` of a step are stored: of older checkpoints all but the newest `keep`; what interrupted saves of this step and of older
    ones have left."""
    try:
        _remove_others(storage, step, files, keep)
    except OSError as error:  # the next save removes them
        log.warning("older checkpoints in %s are not removed: %s", storage.uri, error)


def _remove_others(storage: Storage, step: int, files: typing.Collection[str], keep: int) -> None:
    named = {name + suffix for name in (*files, METADATA) for suffix in ("", _SUMS)}
    steps = storage.steps()
    storage.remove(step, steps[step].keys() - named)
    older = sorted((each for each in steps if each <= step), reverse=True)
    stored = [each for each in older if METADATA in steps[each]]
    for each in set(older) - set(stored[:keep]):
        storage.remove(each, [METADATA])  # first, so nobody reads what is removed
        storage.remove_step(each)


def lengths_of(places: typing.Iterable[typing.Any]) -> dict[str, int]:
    """How long each file of a checkpoint is. `places`: where all its parts are stored, as DCP has them."""
    lengths: dict[str, int] = {}
    for place in places:
        lengths[place.relative_path] = max(lengths.get(place.relative_path, 0), place.offset + place.length)
    return lengths


@contextlib.contextmanager
def opened(storage: Storage, step: int, name: str, files: dict[str, int]) -> typing.Iterator[io.IOBase]:
    """For reading; verified block by block if we have written it. `files`: what is stored of the step. OSError: it is damaged."""
    if name + _SUMS not in files:
        with storage.open(step, name, None) as stream:
            yield stream
        return
    wanted = json.loads(storage.read(step, name + _SUMS))
    length, blocks = wanted["bytes"], wanted["blockCrc32"]
    if files.get(name) != length or wanted["blockBytes"] != BLOCK:
        raise OSError(f"{storage.uri_of(step)}/{name} is damaged: it has {files.get(name)} bytes, not {length}")
    with storage.open(step, name, [int(blocks[i:i + 8], 16) for i in range(0, len(blocks), 8)]) as stream:
        yield stream
