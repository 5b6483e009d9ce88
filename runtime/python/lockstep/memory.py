"""Memory for checkpoints that outlives this process: segments that the rank's `lockstep program` owns. Without it, this process owns them.

There are two: one is complete while the other is written. A segment is an anonymous file of the kernel:

    header   where the index begins and how long it is; zeros: the segment is not complete
    files    one after another, from _BEGIN on
    index    JSON: folder, step, and of each file its place and the CRC-32 of each block

The header is written last. One thread writes a segment; others read it when it is complete. The kernel takes longer to give its memory than to copy into
it, so it is allocated and mapped before it is written: on another thread, for which no training waits.
"""
from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import logging
import mmap
import os
import struct
import threading
import typing
import zlib

from lockstep.library import library

VARIABLE = "LOCKSTEP_CHECKPOINT_MEMORY"
BLOCK = 1 << 20
_HEADER = struct.Struct("<QQ")
_BEGIN = 4096
_LOOK_SECONDS = 0.02
_AT_ONCE = 64 << 20  # other threads run between
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, of Linux 5.14
_SHARE = 1.25  # of the memory that a checkpoint needs, for what torch.save adds and what else the processes take meanwhile
Read = typing.Callable[[int, int], typing.Union[bytes, memoryview]]  # offset, length


@dataclasses.dataclass
class File:
    """Where a file lies in its segment."""

    offset: int
    bytes: int
    sums: list[int]  # CRC-32 of each block


def sums_of(read: Read, length: int) -> list[int]:
    return [zlib.crc32(read(begin, min(BLOCK, length - begin))) for begin in range(0, length, BLOCK)]


class Segment:
    def __init__(self, file: int) -> None:
        self._file = file
        self._end = _BEGIN  # of the files
        self._map: mmap.mmap | None = None  # of the memory that was allocated before, into which a copy takes half the time of a write
        self._mapped = 0  # so much of it is in the file
        self.folder, self.step = "", -1
        self.files: dict[str, File] = {}
        self.own: list[str] = []  # names of those that this process has written
        self.completed = threading.Event()
        self.keeper: threading.Thread | None = None  # makes it complete, and may store it
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            self._load()

    def _load(self) -> None:
        """What an earlier process has left."""
        begin, length = _HEADER.unpack(os.pread(self._file, _HEADER.size, 0).ljust(_HEADER.size, b"\0"))
        if length == 0:
            return
        index = json.loads(os.pread(self._file, length, begin))
        self.files = {name: File(**fields) for name, fields in index["files"].items()}
        self.folder, self.step = index["folder"], index["step"]
        self.completed.set()

    @property
    def path(self) -> str:
        """Where other processes of the pod find it while this one lives."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def lengths(self) -> dict[str, int]:
        return {name: file.bytes for name, file in self.files.items()}

    def allocated(self) -> int:
        return os.fstat(self._file).st_blocks * 512

    def fits(self, length: int) -> bool:
        """Whether there is memory for a checkpoint of so many bytes."""
        available: float = library().lockstep_available_memory()
        return available < 0 or _SHARE * length - self.allocated() < available

    def allocate(self, length: int) -> None:
        """For a checkpoint of so many bytes, if it fits. A save may begin meanwhile."""
        if not self.fits(length):
            return
        with contextlib.suppress(OSError):  # then the save finds out
            for begin in range(self.allocated(), length, _AT_ONCE):
                os.posix_fallocate(self._file, begin, min(_AT_ONCE, length - begin))
        if self._map is None or len(self._map) < length:
            self._map = _mapped(self._file)

    def is_kept_by_a_thread(self) -> bool:
        return self.keeper is not None and self.keeper.is_alive()

    def wait(self) -> bool:
        """Until it is complete. False: it does not come to be, because the save has failed."""
        while not self.completed.wait(_LOOK_SECONDS):
            if not self.is_kept_by_a_thread():
                return self.completed.is_set()
        return True

    def begin(self, folder: str, step: int) -> None:
        """What it holds is lost. Waits for the thread that still reads it."""
        if self.keeper is not None:
            self.keeper.join()
        self._mapped = 0 if self._map is None else min(len(self._map), os.fstat(self._file).st_size)
        self._write(_HEADER.pack(0, 0), 0)
        self._end = _BEGIN
        self.completed.clear()
        self.folder, self.step, self.files = folder, step, {}

    def create(self, name: str) -> Writing:
        return Writing(self, name)

    def rename(self, name: str, to: str) -> None:
        self.files[to] = self.files.pop(name)

    def complete(self) -> None:
        """Counts the checksums of what was written; until then a process that starts does not find it."""
        for name, file in self.files.items():
            file.sums = sums_of(functools.partial(self.read, name), file.bytes)
        self._write_index()
        self.own = list(self.files)
        self.completed.set()

    def reserve(self, length: int, sums: list[int]) -> File:
        """For a file that is written by `fill`, and belongs to the complete checkpoint from `add` on."""
        file = File(self._end, length, sums)
        self._end += length
        return file

    def fill(self, file: File, offset: int, data: memoryview) -> None:
        self._write(data, file.offset + offset)

    def add(self, files: dict[str, File]) -> None:
        self.files = {**self.files, **files}  # others may iterate over it
        self._write_index()

    def _write_index(self) -> None:
        index = json.dumps({"folder": self.folder, "step": self.step, "files": {name: dataclasses.asdict(file) for name, file in self.files.items()}}).encode()
        self._write(index, self._end)
        end = self._end + len(index)
        self._mapped = min(self._mapped, end)  # what is mapped beyond the end must not be touched
        os.ftruncate(self._file, end)  # what a larger checkpoint before has left
        self._write(_HEADER.pack(self._end, len(index)), 0)
        self._end += len(index)

    def read(self, name: str, offset: int, length: int) -> bytes:
        file = self.files[name]
        return os.pread(self._file, max(0, min(length, file.bytes - offset)), file.offset + offset)

    def open(self, name: str, offset: int = 0, length: int | None = None) -> Reading:
        file = self.files[name]
        return Reading(name, self._file, file.offset + offset, file.bytes - offset if length is None else length)

    def damage(self, names: set[str]) -> str | None:
        """What of these files does not have its checksum any more."""
        for name, file in self.files.items():
            if name not in names:
                continue
            for block, (is_now, was) in enumerate(zip(sums_of(functools.partial(self.read, name), file.bytes), file.sums)):
                if is_now != was:
                    return f"block {block} of {name}"
        return None

    def append(self, data: memoryview) -> None:
        self._write(data, self._end)
        self._end += data.nbytes

    def place(self, name: str) -> File:
        self.files[name] = File(self._end, 0, [])
        return self.files[name]

    def _write(self, data: bytes | memoryview, offset: int) -> None:
        rest = memoryview(data).cast("B")
        while self._map is not None and rest and offset + min(len(rest), _AT_ONCE) <= self._mapped:
            piece = rest[:_AT_ONCE]
            self._map[offset:offset + len(piece)] = piece
            rest, offset = rest[len(piece):], offset + len(piece)
        while rest:
            written = os.pwrite(self._file, rest, offset)
            rest, offset = rest[written:], offset + written


def _mapped(file: int) -> mmap.mmap | None:
    """All of it. None: it is empty, or cannot be mapped."""
    try:
        found = mmap.mmap(file, 0)
    except (OSError, ValueError):
        return None
    with contextlib.suppress(OSError):  # without it the first copy takes longer
        for begin in range(0, len(found), _AT_ONCE):
            found.madvise(_POPULATE_WRITE, begin, min(_AT_ONCE, len(found) - begin))
    return found


class Writing(io.RawIOBase):
    """A file of a segment while it is written. One at a time."""

    def __init__(self, segment: Segment, name: str) -> None:
        self._segment, self._place = segment, segment.place(name)

    def writable(self) -> bool:
        return True

    def write(self, data: typing.Any) -> int:
        view = memoryview(data).cast("B")
        self._segment.append(view)
        self._place.bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._place.bytes


class Reading(io.RawIOBase):
    """A file that lies in another one. If `sums` is given, each block is verified when it is first read."""

    def __init__(self, name: str, file: int, begin: int, length: int, sums: list[int] | None = None) -> None:
        self._name, self._file, self._begin, self._length = name, file, begin, length
        self._unverified = dict(enumerate(sums or []))
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: typing.Any) -> int:
        view = memoryview(buffer).cast("B")
        length = min(view.nbytes, self._length - self._position)
        if length <= 0:
            return 0
        self._verify(self._position, length)
        got = os.preadv(self._file, [view[:length]], self._begin + self._position)
        self._position += got
        return got

    def _verify(self, begin: int, length: int) -> None:
        for block in range(begin // BLOCK, (begin + length - 1) // BLOCK + 1):
            wanted = self._unverified.pop(block, None)
            if wanted is None:
                continue
            offset = block * BLOCK
            if zlib.crc32(os.pread(self._file, min(BLOCK, self._length - offset), self._begin + offset)) != wanted:
                raise OSError(f"{self._name} is damaged: block {block} does not have its CRC-32")


@functools.lru_cache(maxsize=None)
def segments() -> tuple[Segment, ...]:
    """Those of this process; the same objects each time."""
    try:
        files = [os.open(path, os.O_RDWR | os.O_CLOEXEC) for path in os.environ.get(VARIABLE, "").split(":") if path]
    except OSError as error:  # as in a container of another user
        logging.getLogger("lockstep").warning("checkpoints in memory do not outlive this process: %s", error)
        files = []
    return tuple(Segment(file) for file in files or [os.memfd_create("lockstep-checkpoint") for _ in range(2)])


def allocate_all(length: int) -> None:
    """For the checkpoints that will be saved, each of so many bytes."""
    for each in segments():
        each.allocate(length)
