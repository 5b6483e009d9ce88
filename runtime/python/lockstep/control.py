"""The conversation with the supervisor of the pod: what lockstep-rank says over its socket (runtime/common/protocol/rank_control.h).

One thread reads. It records requests for the training thread, ends a collective at once when the round is aborted, and answers
whether this rank waits for others. When the supervisor is gone it ends this process.
"""
from __future__ import annotations

import functools
import json
import math
import os
import socket
import threading
import time
import typing

from lockstep.errors import Stopped

if typing.TYPE_CHECKING:
    from lockstep.rounds import Round

SOCKET = "LOCKSTEP_RANK_SOCKET"
_SUPERVISOR_GONE = 1
_YIELD = 0  # protocol::LeaveMode


class Control:
    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect("\0" + name)
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._assignment: dict[str, typing.Any] | None = None
        self._is_announced = False  # and the assignment was not taken yet
        self._newest_round = 0
        self._aborted_round = 0
        self._round: Round | None = None
        self.yield_requested = False
        self.save_requested = False
        self.stop_at: float | None = None  # of time.monotonic(), when this process must have ended
        threading.Thread(target=self._read, name="lockstep-control", daemon=True).start()

    def send(self, kind: str, **fields: typing.Any) -> None:
        line = json.dumps({"type": kind, **_finite(fields)}).encode() + b"\n"
        with self._sending:
            try:
                self._socket.sendall(line)
            except OSError:
                pass  # the reading thread ends this process

    def announce(self, step: int, store_port: int) -> None:
        """This rank is ready for the next round. Once it has said so, it gets an assignment."""
        if not self._is_announced:
            self._is_announced = True
            self.send("ready", step=step, storePort=store_port)

    def wait_for_assignment(self) -> dict[str, typing.Any]:
        """Needs no deadline: the supervisor bounds the wait for a round. Raises Stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._assignment is not None or self.stop_at is not None)
            if self.stop_at is not None:
                raise Stopped
            assignment, self._assignment = self._assignment, None
            self._is_announced = False
        assert assignment is not None
        return assignment

    def attach(self, round_: Round) -> None:
        """From now on an abort of the round aborts it; at once if the abort came before."""
        with self._changed:
            self._round = round_
            is_late = round_.number != self._newest_round or self._aborted_round == round_.number
            if self.yield_requested:
                round_.leave_unless_complete()
        if is_late:
            round_.abort("the round was over before it began")

    def detach(self) -> None:
        with self._changed:
            self._round = None

    def wait_for_abort(self, number: int, seconds: float) -> bool:
        """Whether the round is aborted, or comes to be within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._aborted_round == number or self._newest_round != number, seconds)

    def _read(self) -> None:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                self._handle(json.loads(line))
        os._exit(_SUPERVISOR_GONE)

    def _handle(self, message: dict[str, typing.Any]) -> None:
        kind = message["type"]
        if kind == "ping":
            with self._changed:
                waits = self._round is not None and self._round.waits_for_peers
            # What the script does outside of collectives is not known, and may take long: an evaluation, a compilation, an upload.
            self.send("pong", waitsForPeers=waits, mayTakeLong=True)
            return
        to_abort = None
        with self._changed:
            if kind == "assignment":
                self._assignment = message
                self._newest_round = message["round"]
                self.yield_requested = False
            elif kind == "roundOver" and message["round"] == self._newest_round:
                if message["mode"] == _YIELD:
                    self.yield_requested = True
                    if self._round is not None:
                        self._round.leave_unless_complete()
                else:
                    self._aborted_round = message["round"]
                    to_abort = self._round
            elif kind == "save":
                self.save_requested = True
            elif kind == "stop":
                self.stop_at = time.monotonic() + message["graceSeconds"]
            self._changed.notify_all()
        if to_abort is not None:  # without the lock, which the training thread may need to come out of a collective
            to_abort.abort("a rank has left the round")


def _finite(value: typing.Any) -> typing.Any:
    """JSON has no NaN and no infinity; for the supervisor a number that is null is not finite. A loss may be, for a while."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


@functools.lru_cache(maxsize=None)
def connection() -> Control | None:
    """Of this process. None: it was started without a supervisor."""
    name = os.environ.get(SOCKET)
    return Control(name) if name else None
