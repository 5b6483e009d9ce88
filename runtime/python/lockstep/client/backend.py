"""Where jobs run: what a cluster (cluster.py) and this machine (local.py) have in common."""
from __future__ import annotations

import typing

from lockstep.client.manifest import Object, Options
from lockstep.client.program import Program

Changes = typing.Generator[Object, None, None]
Say = typing.Callable[[str], None]


class Backend(typing.Protocol):
    """`name` is that of a job. Raises LockstepError, with one line that says what to change."""

    def submit(self, name: str, program: Program, options: Options) -> None: ...

    def submit_manifest(self, manifest: Object) -> None: ...

    def get(self, name: str) -> Object:
        """The job as the API has it, with spec and status."""
        ...

    def names(self) -> list[str]: ...

    def changes(self, name: str, deadline: float, say: Say = print) -> Changes:
        """The job now, and again when it has changed. Raises TimeoutError at the deadline, of time.monotonic(). `say` reports what it waits for."""
        ...

    def logs(self, name: str, rank: int, follow: bool) -> typing.Iterator[str]: ...

    def set_suspend(self, name: str, suspend: bool) -> None: ...

    def request_checkpoint(self, name: str) -> None: ...

    def delete(self, name: str) -> None: ...
