"""The store of a round for Gloo, which waits in it for the other ranks while they connect and cannot be interrupted."""
from __future__ import annotations

import datetime
import time
import typing

import torch.distributed as dist

from lockstep.errors import RoundBroken

_FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.05
_PART_OF_THE_WAIT = 0.05  # by which a pause may make it longer


def wait_until(condition: typing.Callable[[], bool], failure: typing.Callable[[], str | None], seconds: float | None = None,
               longest_pause: float = LONGEST_PAUSE) -> None:
    """`failure`: why the round is over. RoundBroken: it is over, or another rank has not come within `seconds`."""
    begin = time.monotonic()
    while not condition():
        reason, waited = failure(), time.monotonic() - begin
        if reason is not None:
            raise RoundBroken(reason)
        if seconds is not None and waited > seconds:
            raise RoundBroken(f"a rank has waited for another one for {seconds:g} s")
        time.sleep(min(longest_pause, max(_FIRST_PAUSE, waited * _PART_OF_THE_WAIT)))


class RoundStore(dist.Store):
    """Waits in it, and for its host, end with the round. Gloo and PrefixStore call it from C++, by the names that PyTorch looks for in a store of Python;
    this object must outlive them.

    `plain`: the store itself. `call` runs an operation of it, and raises RoundBroken when the round is over before it returns. `failure`: why the round
    is over."""

    def __init__(self, store: dist.Store, call: typing.Callable[[typing.Callable[[], typing.Any]], typing.Any], failure: typing.Callable[[], str | None]) -> None:
        super().__init__()
        self.plain, self._call, self._failure = store, call, failure

    def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None:
        limit = self.plain.timeout if timeout is None else timeout
        self._call(lambda: wait_until(lambda: self.plain.check(keys), self._failure, limit.total_seconds()))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return bytes(self._call(lambda: self.plain.get(key)))

    def set(self, key: str, value: bytes | str) -> None:
        self._call(lambda: self.plain.set(key, value))

    def add(self, key: str, amount: int) -> int:
        return int(self._call(lambda: self.plain.add(key, amount)))

    def check(self, keys: list[str]) -> bool:
        return bool(self._call(lambda: self.plain.check(keys)))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return bytes(self._call(lambda: self.plain.compare_set(key, expected, desired)))

    def deleteKey(self, key: str) -> bool:
        return bool(self._call(lambda: self.plain.delete_key(key)))

    def getNumKeys(self) -> int:
        return int(self._call(self.plain.num_keys))

    def has_extended_api(self) -> bool:
        return False
