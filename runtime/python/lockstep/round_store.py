"""The store of a round for Gloo, which waits in it for the other ranks while they connect and cannot be interrupted."""
from __future__ import annotations

import datetime
import time
import typing

import torch.distributed as dist

from lockstep.errors import RoundBroken

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


def wait_until(what: str, condition: typing.Callable[[], bool], failure: typing.Callable[[], str | None], seconds: float | None = None) -> None:
    """`failure`: why the round is over. RoundBroken: it is over, or the time is."""
    end = None if seconds is None else time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while not condition():
        reason = failure()
        if reason is not None:
            raise RoundBroken(f"while waiting for {what}: {reason}")
        if end is not None and time.monotonic() > end:
            raise RoundBroken(f"while waiting for {what}: {seconds:g} s are over")
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)


class RoundStore(dist.Store):
    """Waits in it end with the round. Gloo and PrefixStore call it from C++, by the names that PyTorch looks for in a store of Python; this object must outlive them."""

    def __init__(self, store: dist.Store, failure: typing.Callable[[], str | None]) -> None:
        super().__init__()
        self._store, self._failure = store, failure

    def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None:
        limit = self._store.timeout if timeout is None else timeout
        wait_until("another rank that connects", lambda: self._store.check(keys), self._failure, limit.total_seconds())

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._store.get(key)

    def set(self, key: str, value: bytes | str) -> None:
        self._store.set(key, value)

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        return self._store.check(keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return self._store.compare_set(key, expected, desired)

    def deleteKey(self, key: str) -> bool:
        return self._store.delete_key(key)

    def getNumKeys(self) -> int:
        return self._store.num_keys()

    def has_extended_api(self) -> bool:
        return False
