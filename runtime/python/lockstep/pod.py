"""The ranks of a pod that hold one state together, as shards of it (FSDP2): how they find each other, agree and end.

Their process group is the default one of PyTorch. It is made once, survives the rounds, and lasts as long as these processes: when one of them
ends, the others have lost a part of their state, so they end, too, and the supervisor starts all of them again.
"""
from __future__ import annotations

import atexit
import os
import select
import socket
import struct
import sys
import threading
import time
import typing

import torch
import torch.distributed as dist

from lockstep.control import SOCKET, connection
from lockstep.errors import LockstepError, Stopped
from lockstep.rounds import listen

if typing.TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_ENDED_WITH_ANOTHER = 1
_ENDS_WELL = b"."
_PAUSE = 0.02
# Then a rank that still misses others asks for a round: they may wait for one, because their scripts had ended in good order.
_PATIENCE = 10.0
LOST_BY_ANOTHER = "another rank of this pod has lost the round"


class Pod:
    """Attributes: `rank` and `size` within it, `mesh` of its ranks. The default: a rank that shares its state with no other."""

    def __init__(self, rank: int = 0, size: int = 1, mesh: DeviceMesh | None = None) -> None:
        self.rank, self.size, self.mesh = rank, size, mesh
        # For what these ranks say to each other: on the CPU, so a rank does not wait for its device.
        self._group: typing.Any = dist.new_group(backend="gloo") if size > 1 and dist.get_backend() != "gloo" else None

    def gather(self, *values: float) -> list[list[float]]:
        """What each rank says, in the order of the ranks. All ranks of the pod call this at the same points."""
        if self.size == 1:
            return [list(values)]
        rows = torch.zeros(self.size, len(values), dtype=torch.float64)
        rows[self.rank] = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(rows, group=self._group)
        return typing.cast("list[list[float]]", rows.tolist())

    def any(self, *flags: bool) -> list[bool]:
        """For each flag, whether a rank has it."""
        return [any(column) for column in zip(*self.gather(*flags))]


_pod = Pod()


def this_pod() -> Pod:
    return _pod


def shard_mesh(device_type: str | None = None) -> DeviceMesh:
    """The ranks of this pod, for `fully_shard`. Their process group is the default one, so a script calls this instead of `init_process_group`.

    All ranks of the pod call it, once the slow imports are done, and before `lockstep.join`. `device_type`: `cuda` where there is a GPU, else `cpu`.
    Alone, a process is a mesh of its own.

    Examples:
        >>> mesh = lockstep.shard_mesh()
        >>> for layer in model.layers:
        ...     fully_shard(layer, mesh=mesh)
        >>> fully_shard(model, mesh=mesh)
        >>> job = lockstep.join(model, torch.optim.AdamW(model.parameters()))
    """
    global _pod
    if _pod.mesh is not None:
        return _pod.mesh
    if dist.is_initialized():
        raise LockstepError("there is a process group already: call shard_mesh() instead of init_process_group()")
    device_type = device_type or ("cuda" if torch.cuda.is_available() else "cpu")
    rank, size = (int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])) if SOCKET in os.environ else (0, 1)
    store = _find_each_other(rank, size) if size > 1 else dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo", store=store, rank=rank, world_size=size)
    from torch.distributed.device_mesh import init_device_mesh  # takes a while to import
    mesh = init_device_mesh(device_type, (size,), mesh_dim_names=("shard",))
    _pod = Pod(rank, size, mesh)
    return mesh


def _find_each_other(rank: int, size: int) -> typing.Any:
    """A store that only these processes know. Rank 0 has it, and a connection to each other rank."""
    name = "\0lockstep-pod-" + os.environ["LOCKSTEP_POD_UID"]
    if rank > 0:
        link, port = _find(name, rank)
        _begin_watch([link])
        return dist.TCPStore("127.0.0.1", port)  # type: ignore[attr-defined]
    links = _wait_for_others(name, size)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    _begin_watch(links)
    for link in links:
        try:
            link.sendall(f"{store.port}\n".encode())
        except OSError:
            pass  # the watch ends this process
    return store


def _wait_for_others(name: str, size: int) -> list[socket.socket]:
    """They come in any order. One that has ended meanwhile is started again, and comes again."""
    links: dict[int, socket.socket] = {}
    patience = _Patience()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen(size)
        while len(links) < size - 1:
            for ready in select.select([listener, *links.values()], [], [], _PAUSE)[0]:
                if ready is not listener:
                    ready.close()
                    continue
                link, _ = listener.accept()
                hello = _line(link) if _is_ours(link) else ""
                if hello:
                    links[int(hello)] = link
            links = {rank: link for rank, link in links.items() if link.fileno() >= 0}
            patience.is_tried()
    return list(links.values())


def _find(name: str, rank: int) -> tuple[socket.socket, int]:
    patience = _Patience()
    while True:
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(name)
            if _is_ours(link):
                link.sendall(f"{rank}\n".encode())
                while not select.select([link], [], [], _PAUSE)[0]:
                    patience.is_tried()
                if port := _line(link):
                    return link, int(port)
        except OSError:
            pass  # rank 0 has not come yet, or has ended
        link.close()
        time.sleep(_PAUSE)
        patience.is_tried()


def _is_ours(link: socket.socket) -> bool:
    """Any process of the machine may know the name."""
    _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(uid == os.geteuid())


def _line(link: socket.socket) -> str:
    """Empty: the other end is closed."""
    with link.makefile("rb", buffering=0) as lines:
        return lines.readline().decode().strip()


class _Patience:
    def __init__(self) -> None:
        self._until = time.monotonic() + _PATIENCE

    def is_tried(self) -> None:
        """Raises Stopped."""
        if time.monotonic() < self._until or (control := connection()) is None:
            return
        if control.stop_at is not None:
            raise Stopped
        with listen() as free:
            control.announce(-1, free.getsockname()[1])


def _begin_watch(links: list[socket.socket]) -> None:
    atexit.register(_end_well, links)
    threading.Thread(target=_watch, args=(list(links),), name="lockstep-pod", daemon=True).start()


def _watch(links: list[socket.socket]) -> None:
    while links:
        for link in select.select(links, [], [])[0]:
            try:
                ends_well = link.recv(1) == _ENDS_WELL
            except OSError:
                ends_well = False
            if not ends_well:
                os.write(2, b"lockstep: another rank of this pod has ended, and with it a part of the state: this one ends, too\n")
                os._exit(_ENDED_WITH_ANOTHER)
            links.remove(link)


def _end_well(links: list[socket.socket]) -> None:
    """The script has ended without an error, so the other ranks need no more of this one."""
    if getattr(sys, "last_value", None) is None:
        for link in links:
            try:
                link.sendall(_ENDS_WELL)
            except OSError:
                pass
