"""Where checkpoints are stored: a folder, or a bucket of S3, Google Cloud Storage or Azure. Both hold `step-N/FILE`, each file complete or absent.

A bucket needs the package `pyarrow`, whose C++ is also what `lockstep-rank` stores with. OSError says what the store has answered.
"""
from __future__ import annotations

import abc
import contextlib
import functools
import io
import logging
import os
import pathlib
import shutil
import time
import typing

from torch.distributed.checkpoint.filesystem import FileSystem

from lockstep.errors import LockstepError
from lockstep.memory import Reading, sums_of

PATIENCE = 1800.0
"""Seconds for which a store that does not answer is asked again; as failurePolicy.storePatienceSeconds by default."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_KEYS_PATIENCE = 120.0
"""Seconds for which a store that denies access is asked again if a service provides the keys. While the service is away, requests have no keys.
This is shorter than PATIENCE because Arrow does not report whether it has keys, and missing rights must be reported soon."""
_PIECE_BYTES = 64 << 20
_STEP = "step-"
# Arrow reports each failure as OSError, so the text is all there is (runtime/storage/s3_client.cc, gcs_client.cc, azure_client.cc).
_DENIED = ("ACCESS_DENIED", "HTTP status 403", "PERMISSION_DENIED", "] 403 ")
_FINAL = (*_DENIED, "NO_SUCH_BUCKET", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "HTTP status 401", "HTTP status 404", "PERMANENT_REDIRECT",
          "UNAUTHENTICATED", "INVALID_ARGUMENT", "SSL peer certificate", "Response checksums mismatch", "DATA_LOSS",
          "] 400 ", "] 401 ", "] 404 ")
_NO_IDENTITY = "AuthenticationException"  # Azure's
Blocks = typing.Callable[[], typing.Iterable[bytes]]  # the content of a file from its begin, each time
Steps = typing.Dict[int, typing.Dict[str, int]]  # step -> name -> bytes
log = logging.getLogger("lockstep")


class Storage(abc.ABC):
    """Any thread."""

    uri: str
    path: pathlib.PurePath
    """For `file_system`."""

    def path_of(self, step: int) -> pathlib.PurePath:
        return self.path / f"{_STEP}{step:012d}"

    def uri_of(self, step: int) -> str:
        return f"{self.uri}/{self.path_of(step).name}"

    @abc.abstractmethod
    def steps(self) -> Steps:
        """What is stored, of all steps."""

    @abc.abstractmethod
    def write(self, step: int, name: str, blocks: Blocks) -> None:
        """Readers see the whole file or none."""

    @abc.abstractmethod
    def remove(self, step: int, names: typing.Iterable[str]) -> None: ...

    @abc.abstractmethod
    def remove_step(self, step: int) -> None: ...

    @abc.abstractmethod
    def read(self, step: int, name: str) -> bytes:
        """Of a small file."""

    @abc.abstractmethod
    def open(self, step: int, name: str, block_sums: list[int] | None) -> typing.ContextManager[io.IOBase]:
        """For reading. OSError: a block does not have its CRC-32."""

    @property
    @abc.abstractmethod
    def file_system(self) -> FileSystem:
        """For PyTorch's FileSystemWriter."""


@functools.lru_cache(maxsize=None)
def storage_at(text: str) -> Storage:
    """A folder, or a URI such as s3://bucket/run. The same object each time: opening a bucket may need an answer of the store."""
    if text.startswith("file://"):
        return Folder(pathlib.Path(text[len("file://"):]))
    return Bucket(text) if "://" in text else Folder(pathlib.Path(text).absolute())


class Folder(Storage):
    def __init__(self, path: pathlib.Path) -> None:
        self.path: pathlib.Path = path
        self.uri = f"file://{path}"

    def steps(self) -> Steps:
        return {int(path.name[len(_STEP):]): {each.name: _length(each) for each in path.iterdir()}
                for path in self.path.glob(f"{_STEP}*") if path.name[len(_STEP):].isdigit()}

    def write(self, step: int, name: str, blocks: Blocks) -> None:
        folder = self._folder_of(step)
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{name}.unfinished-{os.getpid()}"
        try:
            with unfinished.open("wb") as stream:
                stream.writelines(blocks())
                stream.flush()
                os.fsync(stream.fileno())
            unfinished.rename(folder / name)
            _sync(folder)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise

    def remove(self, step: int, names: typing.Iterable[str]) -> None:
        for name in names:
            (self._folder_of(step) / name).unlink(missing_ok=True)

    def remove_step(self, step: int) -> None:
        shutil.rmtree(self._folder_of(step), ignore_errors=True)

    def read(self, step: int, name: str) -> bytes:
        return (self._folder_of(step) / name).read_bytes()

    @contextlib.contextmanager
    def open(self, step: int, name: str, block_sums: list[int] | None) -> typing.Iterator[io.IOBase]:
        path = self._folder_of(step) / name
        with path.open("rb") as stream:
            length = os.fstat(stream.fileno()).st_size
            yield stream if block_sums is None else io.BufferedReader(Reading(str(path), stream.fileno(), 0, length, block_sums))

    @property
    def file_system(self) -> FileSystem:
        return FileSystem()

    def _folder_of(self, step: int) -> pathlib.Path:
        return self.path / self.path_of(step).name


def _length(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # another rank has just renamed it
        return -1


def _sync(folder: pathlib.Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Bucket(Storage):
    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        try:
            import pyarrow.fs  # type: ignore[import-untyped]
        except ImportError:
            raise LockstepError(f"{uri}: checkpoints in a bucket need the package pyarrow: pip install pyarrow") from None
        from lockstep import object_store
        self._arrow = pyarrow.fs
        self._keys_may_be_away = uri.startswith("s3://") and not os.environ.get("AWS_ACCESS_KEY_ID")
        self._store, path = self._insistently(self.uri, lambda: object_store.connect(self.uri))
        self.path = pathlib.PurePosixPath(path)

    def steps(self) -> Steps:
        found: Steps = {}
        selected = self._arrow.FileSelector(str(self.path), recursive=True, allow_not_found=True)
        listed = self._insistently(self.uri, lambda: self._store.get_file_info(selected))
        if not listed:
            self._expect_bucket()
        for each in listed:
            step = pathlib.PurePosixPath(each.path).parent.name
            is_file = each.type == self._arrow.FileType.File and each.size > 0  # Azure: a writer that is killed leaves an empty one
            if is_file and step.startswith(_STEP) and step[len(_STEP):].isdigit():
                found.setdefault(int(step[len(_STEP):]), {})[each.base_name] = each.size
        return found

    def _expect_bucket(self) -> None:
        bucket = self.path.parts[0]
        try:
            info = self._insistently(self.uri, lambda: self._store.get_file_info(bucket), denial_is_final=True)
        except OSError as error:
            if _is_one_of(_DENIED, error):  # the rights to objects, which are enough, may be without that to look at the bucket
                return
            raise
        if info.type == self._arrow.FileType.NotFound:
            raise LockstepError(f"{self.uri}: bucket {bucket} does not exist; create it, or correct the name")

    def write(self, step: int, name: str, blocks: Blocks) -> None:
        self._insistently(f"{self.uri_of(step)}/{name}", lambda: self._write(str(self.path_of(step) / name), blocks))

    def _write(self, path: str, blocks: Blocks) -> None:
        with self._store.open_output_stream(path) as stream:
            for block in blocks():
                stream.write(block)

    def remove(self, step: int, names: typing.Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._store.delete_file(str(self.path_of(step) / name))

    def remove_step(self, step: int) -> None:
        with contextlib.suppress(OSError):
            self._store.delete_dir(str(self.path_of(step)))

    def read(self, step: int, name: str) -> bytes:
        return bytes(self._content(step, name))

    @contextlib.contextmanager
    def open(self, step: int, name: str, block_sums: list[int] | None) -> typing.Iterator[io.IOBase]:
        """All of it is read at once: a request for each part would wait for each answer."""
        content = memoryview(self._content(step, name))
        for block, (is_now, was) in enumerate(zip(sums_of(lambda offset, count: content[offset:offset + count], content.nbytes), block_sums or [])):
            if is_now != was:
                raise OSError(f"{self.uri_of(step)}/{name} is damaged: block {block} does not have its CRC-32")
        yield io.BytesIO(content)

    def _content(self, step: int, name: str) -> bytearray:
        return typing.cast(bytearray, self._insistently(f"{self.uri_of(step)}/{name}", lambda: self._read(str(self.path_of(step) / name))))

    def _read(self, path: str) -> bytearray:
        with self._store.open_input_file(path) as file:
            content = bytearray(file.size())
            view, position = memoryview(content), 0
            while position < len(content):
                position += file.readinto(view[position:position + _PIECE_BYTES])
        return content

    @property
    def file_system(self) -> FileSystem:
        return _FileSystem(self._store)

    def _insistently(self, what: str, action: typing.Callable[[], typing.Any], denial_is_final: bool = False) -> typing.Any:
        """Repeated while the store does not answer."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                return action()
            except OSError as error:
                may_lack_keys = self._keys_may_be_away and not denial_is_final and _is_one_of(_DENIED, error)
                is_final = _is_one_of(_FINAL, error) and not may_lack_keys or _NO_IDENTITY in str(error) and not _names_identity()
                if isinstance(error, FileNotFoundError) or is_final:
                    raise OSError(f"{what}: {error}") from error
                problem, patience = ("no access to", _KEYS_PATIENCE) if may_lack_keys else ("no answer from", PATIENCE)
                if pause == _FIRST_PAUSE:
                    log.warning("%s: %s the store, which is asked again for %d s: %s", what, problem, patience, error)
                if time.monotonic() + pause > began + patience:
                    raise OSError(f"{what}: {problem} the store within {patience:g} s: {error}") from error
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)


def _names_identity() -> bool:
    """Whether the environment names an identity of Azure, whose tokens come from a service that may be away."""
    return any(os.environ.get(name) for name in ("AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"))


def _is_one_of(words: tuple[str, ...], error: OSError) -> bool:
    return any(word in str(error) for word in words)


class _FileSystem(FileSystem):
    """A bucket as PyTorch's FileSystemWriter uses it."""

    def __init__(self, store: typing.Any) -> None:
        self._store = store

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> typing.Generator[io.IOBase, None, None]:
        with self._store.open_output_stream(str(path)) as stream:
            yield stream

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        self._store.copy_file(str(path), str(new_path))  # Arrow moves nothing at Azure
        self._store.delete_file(str(path))

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """A bucket has no folders."""

    def exists(self, path: str | os.PathLike[str]) -> bool:
        return bool(self._store.get_file_info(str(path)).is_file)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        self._store.delete_file(str(path))
