"""The process group of one round: built from an assignment, aborted from any thread, dropped without waiting for its end.

What waits in Gloo for a rank that is alive but has left cannot be ended from outside: `abort` of its group wakes nobody (PyTorch 2.15). So
DistributedDataParallel waits for futures of ours, which an abort completes with an error; other operations, and those of the store, are waited for by
a thread that is given up then. Where PyTorch waits inside a function that cannot be given up, all ranks are there before, and the limit is short. The
group itself is dropped by a thread of its own: its destructor waits until all connections of its collectives are closed, and they close when each rank
drops its group.
"""
from __future__ import annotations

import ctypes
import datetime
import socket
import threading
import time
import typing

import torch
import torch.distributed as dist

from lockstep.errors import LockstepError, RoundBroken
from lockstep.round_store import LONGEST_PAUSE, RoundStore, wait_until

if typing.TYPE_CHECKING:
    from lockstep.pod import Pod

T = typing.TypeVar("T")
# The supervisor finds a rank that hangs; this only ends what it cannot see.
_COLLECTIVE_LIMIT = datetime.timedelta(minutes=30)
_STORE_LIMIT = datetime.timedelta(minutes=1)
# Before 2.9, Gloo keeps the limit with which a group was made.
CHANGES_LIMITS = hasattr(dist.ProcessGroupGloo, "set_timeout")
# For each wait in Gloo that an abort does not reach, when all ranks have arrived. Nothing else ends the wait for one that has died in this moment.
_UNABORTABLE_LIMIT = datetime.timedelta(seconds=10 if CHANGES_LIMITS else 120)
_LEFT, _SHARED_DEVICE = "left", "shared-device"  # keys of the store
_LONGEST_PAUSE_FOR_VALUES = 1.0  # in waits for other ranks, all of which ask the same host
_OVER_EARLY = "the round was over before all of its ranks had arrived"
_WAITING, _DROPPING = "lockstep-wait", "lockstep-drop"  # names of threads
_PATIENCE_AT_THE_END = 5.0  # seconds
# The first two retries are immediate, because one failure is often seen twice.
_BROKEN_AT_MOST, _BROKEN_AT_ONCE, _FIRST_RETRY_PAUSE, _LONGEST_RETRY_PAUSE = 20, 2, 0.1, 5.0


def listen() -> socket.socket:
    """Where this rank serves the store of the next round, if it becomes rank 0."""
    listener = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("", 0))
    listener.listen(2048)
    return listener


def join_threads(stop_at: float | None) -> None:
    """At the end of a process, which a thread that returns from PyTorch while the interpreter ends would abort: Python ends the thread by unwinding
    its stack, and functions of C++ are in it. One that waits for longer is left: it will hardly return in that moment. `stop_at`: when the process must
    have ended, by time.monotonic(); half of the time until then is left for the rest."""
    now = time.monotonic()
    patience = _PATIENCE_AT_THE_END if stop_at is None else min(_PATIENCE_AT_THE_END, max(0.0, stop_at - now) / 2)
    deadline = now + patience
    for thread in threading.enumerate():
        if thread.name in (_WAITING, _DROPPING):
            thread.join(max(0.0, deadline - time.monotonic()))


def _store(*place: typing.Any, **options: typing.Any) -> typing.Any:
    try:
        return dist.TCPStore(*place, **options)  # type: ignore[attr-defined]
    except NotImplementedError:  # libuv with a descriptor, in PyTorch 2.4
        return dist.TCPStore(*place, **options, use_libuv=False)  # type: ignore[attr-defined, misc]


def device_id(device: torch.device) -> str | None:
    """Unique across machines. None: ranks may share it."""
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None


def _claim(store: RoundStore, device: str) -> None:
    """Before the rank has arrived in the round."""
    if store.add(f"device/{device}", 1) > 1:
        store.set(_SHARED_DEVICE, device)


def _expect_own_devices(store: RoundStore) -> None:
    """After all ranks have arrived. NCCL would fail on each of them without saying what to do."""
    if store.check([_SHARED_DEVICE]):
        raise LockstepError(f"several ranks of this job use the GPU {store.get(_SHARED_DEVICE).decode()}, and NCCL needs one for each rank: choose it before "
                            'the model is made, by torch.cuda.set_device(int(os.environ["LOCAL_RANK"])), and give each pod as many GPUs as it has ranks')


class Round:
    """Attributes: `number`, `rank`, `world`, `device` (of the tensors that it moves).

    Its process group has all ranks. Where those of a pod share one state, it has one rank of each pod, those that hold the same part: `pod`
    says which. `group_rank` and `group_size` are those of this group.
    """

    def __init__(self, assignment: dict[str, typing.Any], device: torch.device, pod: Pod | None = None) -> None:
        self.number: int = assignment["round"]
        self.rank: int = assignment["rank"]
        self.world: int = assignment["world"]
        self.device = device
        self._part = None if pod is None or pod.mesh is None else pod.rank
        size = 1 if self._part is None or pod is None else pod.size
        if self._part is not None and (self.world % size, self.rank % size) != (0, self._part):
            raise LockstepError(f"the pods of this job have different numbers of ranks: this one has {size}, and its rank {self._part} is rank "
                                f"{self.rank} of {self.world}")
        self.group_rank, self.group_size = self.rank // size, self.world // size
        self._group: typing.Any = None
        self._store: RoundStore | None = None  # which Gloo, in C++, does not keep alive
        self.failure: str | None = None  # why the round is over; None: it is not
        self._is_unwanted = False  # it is to end as soon as it can
        self._store_at: tuple[str, int] = (assignment["storeHost"], assignment["storePort"])
        self.aborts_by_itself = device.type == "cuda"
        self._lock = threading.Lock()
        self._open: set[torch.futures.Future[typing.Any]] = set()

    def connect(self, listener: socket.socket) -> None:
        """Builds the process group. RuntimeError: a rank has left meanwhile."""
        is_host = self.rank == 0
        descriptor = None
        if is_host and self._store_at[1] == listener.getsockname()[1]:
            descriptor = listener.detach()  # the store owns it now
        if not is_host:
            self._until(self._store_listens)
        opened = self._unless_over(lambda: _store(*self._store_at, is_master=is_host, wait_for_workers=False, timeout=_STORE_LIMIT, master_listen_fd=descriptor))
        self._store = store = RoundStore(opened, self._unless_over, lambda: self.failure)
        own_device = device_id(self.device)
        if own_device is not None:
            _claim(store, own_device)
        # All are here before any of them opens connections, for which the limit is short.
        store.add("arrived", 1)
        self._until(lambda: self._is_complete(opened))
        if own_device is not None:
            _expect_own_devices(store)
        for_group = opened if self.aborts_by_itself else store  # NCCL makes copies of its store, which one of Python does not have
        self._group = self._whole_group(for_group) if self._part is None else self._group_of_part(for_group)
        if not self.aborts_by_itself:
            self._backend(self._group)._set_default_timeout(_COLLECTIVE_LIMIT)

    def _whole_group(self, store: typing.Any) -> typing.Any:
        """The default group of PyTorch."""
        backend, limit = ("nccl", _COLLECTIVE_LIMIT) if self.aborts_by_itself else ("gloo", _UNABORTABLE_LIMIT)
        try:
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=limit)
        except RuntimeError:
            # PyTorch has counted this group, and ranks that have counted differently do not find each other in the store. The count begins again when
            # a default group ends.
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            dist.destroy_process_group()
            raise
        return dist.group.WORLD

    def _group_of_part(self, store: typing.Any) -> typing.Any:
        """The default group of PyTorch is that of the pod, and outlives this one."""
        store = dist.PrefixStore(str(self._part), store)  # type: ignore[attr-defined]
        if self.aborts_by_itself:
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = _COLLECTIVE_LIMIT
            return dist.ProcessGroupNCCL(store, self.group_rank, self.group_size, options)
        return dist.ProcessGroupGloo(store, self.group_rank, self.group_size, _UNABORTABLE_LIMIT)

    def _store_listens(self) -> bool:
        try:
            socket.create_connection(self._store_at, timeout=1).close()
        except OSError:
            if self._is_unwanted:
                raise RoundBroken(_OVER_EARLY)
            return False
        return True

    def _is_complete(self, store: typing.Any) -> bool:
        """Whether all ranks have arrived. RoundBroken: one has left before; then it is so for all of them, because the others would wait for it."""
        if store.add("arrived", 0) == self.world:
            outcome = store.compare_set("outcome", "", "complete")
        elif self._is_unwanted:
            outcome = store.compare_set("outcome", "", "incomplete")
        else:
            return False
        if outcome != b"complete":
            raise RoundBroken(_OVER_EARLY)
        return True

    def _until(self, condition: typing.Callable[[], bool], longest_pause: float = LONGEST_PAUSE) -> None:
        """Needs no deadline of its own: the supervisor ends the round of a rank that does not come."""
        self._unless_over(lambda: wait_until(condition, lambda: self.failure, longest_pause=longest_pause))

    def put(self, key: str, value: str) -> None:
        """For the other ranks, by `get`. RuntimeError: the round is over."""
        assert self._store is not None
        self._store.set(key, value)

    def get(self, *keys: str) -> list[bytes]:
        """Waits until ranks have put them. RuntimeError: the round is over, or a rank has left it."""
        assert self._store is not None
        store = self._store.plain
        self._until(lambda: store.check([*keys]) or store.check([_LEFT]), _LONGEST_PAUSE_FOR_VALUES)
        if not self._store.check([*keys]):
            raise RoundBroken("a rank has left the round")
        return [bytes(each) for each in self._unless_over(lambda: store.multi_get([*keys]))]

    def has(self, key: str) -> bool:
        """Any thread. Whether a rank has put it. RuntimeError: the round is over."""
        store = self._store
        return store is not None and store.check([key])

    def wait_for_all(self, key: str, count: int) -> None:
        """So many ranks call it. RuntimeError: the round is over."""
        assert self._store is not None
        store = self._store.plain
        self._store.add(key, 1)
        self._until(lambda: store.add(key, 0) >= count or store.check([_LEFT]), _LONGEST_PAUSE_FOR_VALUES)

    def leave(self) -> None:
        """Ends the waits of the other ranks. RuntimeError: the round is over."""
        self.put(_LEFT, "")

    def all_reduce(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """The sum over all ranks in `tensor`, as a future that an abort completes."""
        if self.aborts_by_itself:
            future: torch.futures.Future[typing.Any] = self._group.allreduce([tensor]).get_future()
            return future.then(lambda done: done.value()[0])
        ours = self._opened()
        if ours.done():
            return ours
        try:
            self._group.allreduce([tensor]).get_future().add_done_callback(lambda done: self._complete(ours, lambda: done.value()[0]))
        except RuntimeError as error:
            self.abort(str(error))
        return ours

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = source, 0
        if self.group_rank == source:
            self._await(self._group.broadcast([tensor], options))
        else:
            self._land(tensor, lambda landing: self._group.broadcast([landing], options))

    def send(self, tensor: torch.Tensor, to: int) -> None:
        self._await(self._group.send([tensor], to, 0))

    def receive(self, tensor: torch.Tensor, source: int) -> None:
        self._land(tensor, lambda landing: self._group.recv([landing], source, 0))

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        everyones = [torch.zeros_like(tensor) for _ in range(self.group_size)]
        self._await(self._group.allgather([everyones], [tensor]))
        return everyones

    def together(self, act: typing.Callable[[], T]) -> T:
        """What `act` returns, which all ranks call and which waits for them in the group, where no abort reaches it. RuntimeError: the round is over; an
        abort may take as long as _UNABORTABLE_LIMIT."""
        self.all_reduce(torch.zeros(1, device=self.device)).wait()  # so none has died before, and none comes late
        backend = self._backend(self._group)
        backend._set_default_timeout(_UNABORTABLE_LIMIT)
        try:
            result = act()
        except RuntimeError as error:
            self.abort(str(error))
            raise
        backend._set_default_timeout(_COLLECTIVE_LIMIT)
        return result

    @property
    def waits_for_peers(self) -> bool:
        """Whether what this rank has given to the others, or expects from them, is not there yet."""
        return bool(self._open)

    def _backend(self, group: typing.Any) -> typing.Any:
        return group if self._part is not None else group._get_backend(self.device)

    def _land(self, tensor: torch.Tensor, begin: typing.Callable[[torch.Tensor], typing.Any]) -> None:
        """What is given up may still write into its tensor, when another round has filled the one that was meant."""
        landing = tensor if self.aborts_by_itself else torch.empty_like(tensor)
        self._await(begin(landing))
        if landing is not tensor:
            tensor.copy_(landing)

    def _await(self, work: typing.Any) -> None:
        """RuntimeError: the round is over."""
        if self.aborts_by_itself:
            work.wait()
        else:
            self._unless_over(work.wait)

    def _unless_over(self, wait: typing.Callable[[], T]) -> T:
        """What `wait` returns, for which another rank may be needed. RuntimeError: the round is over; only a thread still waits then."""
        ours = self._opened()
        if not ours.done():
            threading.Thread(target=self._complete, args=(ours, wait), name=_WAITING, daemon=True).start()
        return typing.cast(T, ours.wait())

    def _opened(self) -> torch.futures.Future[typing.Any]:
        """A future that an abort completes with an error."""
        ours: torch.futures.Future[typing.Any] = torch.futures.Future()
        with self._lock:
            if self.failure is None:
                self._open.add(ours)
            else:
                ours.set_exception(RoundBroken(self.failure))  # type: ignore[arg-type]
        return ours

    def _complete(self, ours: torch.futures.Future[typing.Any], wait: typing.Callable[[], typing.Any]) -> None:
        try:
            result = wait()
        except RuntimeError as error:
            self.abort(str(error))
        else:
            if self._take(ours):
                ours.set_result(result)

    def _take(self, future: torch.futures.Future[typing.Any]) -> bool:
        """True for one caller only, which then completes it."""
        with self._lock:
            if future not in self._open:
                return False
            self._open.remove(future)
            return True

    def leave_unless_complete(self) -> None:
        """Any thread. The rank that this one waits for may come to the next round only."""
        self._is_unwanted = True

    def abort(self, reason: str) -> None:
        """Any thread. The first reason counts."""
        with self._lock:
            is_first = self.failure is None
            if is_first:
                self.failure = reason
            given_up, self._open = self._open, set()
        for future in given_up:
            future.set_exception(RoundBroken(reason))  # type: ignore[arg-type]
        group = self._group
        if is_first and self.aborts_by_itself and group is not None:
            group.abort()

    def drop(self) -> None:
        """Nothing may refer to the group but what this forgets. Does not wait for the end of a group that has failed."""
        group, self._group, self._store = self._group, None, None
        if group is None:
            return
        # The destructor of a backend lets other threads run while it waits for callbacks; that of a whole group does not in PyTorch 2.4.
        backend = [self._backend(group)]
        if self._part is None and dist.is_initialized():  # the script may have destroyed it at its end
            dist.destroy_process_group()
        del group
        if self.failure is None:
            backend.clear()
            return
        try:
            threading.Thread(target=backend.clear, name=_DROPPING, daemon=True).start()
        except RuntimeError:  # Python 3.12 starts none while it ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(backend))  # so the process ends without the destructor, and closes the connections


class BrokenRounds:
    """Counts those that broke without a step between, as runtime/train/loop/broken_rounds.h."""

    def __init__(self) -> None:
        self._count = 0

    def broke(self, reason: str) -> None:
        """Waits before the next round, longer each time. LockstepError: too many rounds broke."""
        self._count += 1
        if self._count > _BROKEN_AT_MOST:
            raise LockstepError(f"{self._count} rounds broke without a step between; the last one: {reason}")
        if self._count > _BROKEN_AT_ONCE:
            time.sleep(min(_LONGEST_RETRY_PAUSE, _FIRST_RETRY_PAUSE * 2 ** (self._count - _BROKEN_AT_ONCE - 1)))

    def made_step(self) -> None:
        self._count = 0
