"""Stores checkpoints from memory in a folder, on a thread while training continues; and what such a folder contains.

    step-000000000120/
      __0_1f0c39a5_0.distcp                the file of a rank, as DCP has it
      __0_1f0c39a5_0.distcp.crc32.json     its length, and the CRC-32 of each of its blocks
      .metadata                            DCP's, written last: a checkpoint is stored when this is

Each file is written under a temporary name, and renamed when it is on the disk.
"""
from __future__ import annotations

import atexit
import contextlib
import dataclasses
import io
import json
import logging
import os
import pathlib
import shutil
import threading
import time
import typing

from lockstep.memory import BLOCK, Reading, Segment

LONGEST_WAIT = 300.0
"""Seconds for the files of other ranks."""
_AT_THE_END = 10.0  # the same where this process ends
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_METADATA, _SUMS = ".metadata", ".crc32.json"
log = logging.getLogger("lockstep")


@dataclasses.dataclass
class Save:
    """A checkpoint in memory on its way to the folder."""

    segment: Segment
    folder: pathlib.Path
    step: int
    files: dict[str, int] | None  # of the whole checkpoint: name -> bytes; None: another rank coordinates
    keep: int
    on_stored: typing.Callable[[pathlib.Path], None] | None
    is_stored: bool = False  # what this rank stores of it


_being_stored: Save | None = None
_newest: Save | None = None  # stored when this process ends, if it is not by then


def folder_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"step-{step:012d}"


def is_busy() -> bool:
    return _being_stored is not None and _being_stored.segment.is_kept_by_a_thread()


def uses(segment: Segment) -> bool:
    return is_busy() and _being_stored is not None and _being_stored.segment is segment


def begin(save: Save, stores: bool, stores_at_the_end: bool) -> None:
    """Makes the checkpoint in memory complete, and stores it if `stores`, else when this process ends. By one thread."""
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
        if stores:
            _store(save, LONGEST_WAIT)
    except OSError as error:
        log.warning("the checkpoint of step %d is not stored: %s", save.step, error)


def _store_the_newest() -> None:
    save = _newest
    if save is None or save.is_stored:
        return
    try:
        _store(save, _AT_THE_END)
    except OSError as error:
        log.warning("the checkpoint of step %d is not stored: %s", save.step, error)


def _store(save: Save, patience: float) -> None:
    folder = folder_of(save.folder, save.step)
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in save.segment.files if name != _METADATA]
    for name in names:
        _write_from(save.segment, name, folder)
    if save.files is None:
        save.is_stored = True
        return
    _wait_for(folder, save.files, patience)
    _write_from(save.segment, _METADATA, folder)
    save.is_stored = True
    _remove_others(save, folder)
    if save.on_stored is not None:
        save.on_stored(folder)


def _write_from(segment: Segment, name: str, folder: pathlib.Path) -> None:
    file = segment.files[name]
    sums = {"bytes": file.bytes, "blockBytes": BLOCK, "blockCrc32": "".join(f"{each:08x}" for each in file.sums)}
    _write(folder, name + _SUMS, [json.dumps(sums).encode()])
    _write(folder, name, (segment.read(name, begin, BLOCK) for begin in range(0, file.bytes, BLOCK)))


def _write(folder: pathlib.Path, name: str, blocks: typing.Iterable[bytes]) -> None:
    unfinished = folder / f".{name}.unfinished-{os.getpid()}"
    try:
        with unfinished.open("wb") as stream:
            stream.writelines(blocks)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.rename(folder / name)
        _sync(folder)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def _sync(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _wait_for(folder: pathlib.Path, files: dict[str, int], patience: float) -> None:
    deadline, pause = time.monotonic() + patience, _FIRST_PAUSE
    while missing := [name for name, length in files.items() if _length(folder / name) != length]:
        if time.monotonic() > deadline:
            raise OSError(f"other ranks have not stored {', '.join(missing[:3])} within {patience:g} s")
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)


def _length(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _remove_others(save: Save, folder: pathlib.Path) -> None:
    """Of older checkpoints all but the newest `keep`; what interrupted saves of this one and of older steps have left."""
    assert save.files is not None
    named = {name + suffix for name in (*save.files, _METADATA) for suffix in ("", _SUMS)}
    for path in folder.iterdir():
        if path.name not in named:
            path.unlink(missing_ok=True)
    older = sorted((step for step in listed(save.folder) if step <= save.step), reverse=True)
    stored = [step for step in older if (folder_of(save.folder, step) / _METADATA).exists()]
    for step in set(older) - set(stored[:save.keep]):
        (folder_of(save.folder, step) / _METADATA).unlink(missing_ok=True)  # first, so nobody reads what is removed
        shutil.rmtree(folder_of(save.folder, step), ignore_errors=True)


def listed(folder: pathlib.Path) -> dict[int, dict[str, int]]:
    """step -> name -> bytes."""
    found: dict[int, dict[str, int]] = {}
    for path in folder.glob("step-*"):
        if path.name[5:].isdigit():
            found[int(path.name[5:])] = {each.name: _length(each) for each in path.iterdir()}
    return found


@contextlib.contextmanager
def opened(path: pathlib.Path) -> typing.Generator[io.IOBase, None, None]:
    """For reading; verified block by block if we have written it. OSError: it is damaged."""
    with path.open("rb") as stream:
        sums = path.with_name(path.name + _SUMS)
        if not sums.exists():
            yield stream
            return
        wanted = json.loads(sums.read_text())
        length, blocks = wanted["bytes"], wanted["blockCrc32"]
        if _length(path) != length or wanted["blockBytes"] != BLOCK:
            raise OSError(f"{path} is damaged: it has {_length(path)} bytes, not {length}")
        yield io.BufferedReader(Reading(str(path), stream.fileno(), 0, length, [int(blocks[i:i + 8], 16) for i in range(0, len(blocks), 8)]), BLOCK)
