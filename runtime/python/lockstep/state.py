"""The state that must be equal on all ranks, and how a rank receives it from another one.

Objects are pickled without their tensors; these follow one by one, in pieces of at most 64 MiB. Where the receiver's own tensors have the same
shapes they are overwritten in place, so a model needs no second copy.
"""
from __future__ import annotations

import functools
import io
import pickle
import typing

import torch
import torch.distributed as dist

from lockstep.errors import LockstepError

if typing.TYPE_CHECKING:
    from lockstep.rounds import Round

INCOMPLETE = -1  # the step of a state that a rank does not have, or not all of it
_PIECE_BYTES = 64 << 20
Move = typing.Callable[[torch.Tensor], typing.Any]
_Shape = tuple[torch.Size, torch.dtype]


class Stateful(typing.Protocol):
    """What PyTorch's modules, optimizers and schedulers are."""

    def state_dict(self) -> dict[str, typing.Any]: ...
    def load_state_dict(self, state: dict[str, typing.Any]) -> typing.Any: ...


class _Pickler(pickle.Pickler):
    def __init__(self, file: typing.IO[bytes]) -> None:
        super().__init__(file, protocol=4)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, value: typing.Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        self.tensors.append(value.detach())
        return len(self.tensors) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: typing.IO[bytes], tensors: list[torch.Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, number: int) -> torch.Tensor:
        return self._tensors[number]


def _split(state: typing.Any) -> tuple[bytes, list[torch.Tensor]]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(state)
    return file.getvalue(), pickler.tensors


def _shapes(tensors: list[torch.Tensor]) -> list[_Shape]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def _pieces(tensor: torch.Tensor) -> typing.Iterator[torch.Tensor]:
    flat = tensor.view(-1)
    length = max(1, _PIECE_BYTES // max(1, tensor.element_size()))
    for begin in range(0, flat.numel(), length):
        yield flat[begin:begin + length]


def _move(tensor: torch.Tensor, move: Move, device: torch.device) -> torch.Tensor:
    """Sends the tensor, or receives into it; through a copy on the device where the group cannot use it as it is."""
    usable = tensor if tensor.is_contiguous() and tensor.device.type == device.type else tensor.to(device).contiguous()
    for piece in _pieces(usable):
        move(piece)
    return usable


class State:
    def __init__(self, objects: typing.Sequence[Stateful], device: torch.device, step: int = INCOMPLETE) -> None:
        """`device`: that of tensors which the process group moves. `step`: how many steps were made with the objects."""
        self._objects = objects
        self._device = device
        self.step = step

    def synchronise(self, round_: Round, load: typing.Callable[[], None] | None) -> str:
        """Makes it equal on all ranks of a round that begins: the newest state counts. `load` looks for a checkpoint if no rank has a state.
        Returns the source of this rank's state, as protocol::Synced has it. RuntimeError: the round is over."""
        steps = self._everyones_steps(round_)
        is_loaded = False
        if max(steps) < 0 and load is not None:
            load()
            steps, is_loaded = self._everyones_steps(round_), True
        newest = max(steps)
        if newest < 0:  # all ranks start: they take the state of rank 0
            transfer = self.send if round_.rank == 0 else self.receive
            transfer(lambda tensor: dist.broadcast(tensor, src=0))
            self.step = 0
            return "fresh"
        holders = [rank for rank, step in enumerate(steps) if step == newest]
        needy = [rank for rank, step in enumerate(steps) if step != newest]
        if self.step == newest:
            for rank in needy[holders.index(round_.rank)::len(holders)]:
                self.send(functools.partial(dist.send, dst=rank))
            return "checkpoint" if is_loaded else "kept"
        self.step = INCOMPLETE  # until all of it has arrived
        self.receive(functools.partial(dist.recv, src=holders[needy.index(round_.rank) % len(holders)]))
        self.step = newest
        return "peer"

    def _everyones_steps(self, round_: Round) -> list[int]:
        mine = torch.tensor([self.step], device=self._device)
        everyones = [torch.zeros_like(mine) for _ in range(round_.world)]
        dist.all_gather(everyones, mine)
        return [int(each) for each in everyones]

    def send(self, move: Move) -> None:
        for each in self._objects:
            text, tensors = _split(each.state_dict())
            self._send_bytes(pickle.dumps((text, _shapes(tensors))), move)
            for tensor in tensors:
                _move(tensor, move, self._device)

    def receive(self, move: Move) -> None:
        """After an error the objects hold a mixture of both states."""
        for each in self._objects:
            text, shapes = pickle.loads(self._receive_bytes(move))
            _, own = _split(each.state_dict())
            if isinstance(each, torch.nn.Module):
                _expect_same(each, own, shapes)
            tensors = own if _shapes(own) == shapes else [torch.empty(shape, dtype=dtype, device=self._device) for shape, dtype in shapes]
            for tensor in tensors:
                received = _move(tensor, move, self._device)
                if received is not tensor:
                    tensor.copy_(received)
            _load(each, _Unpickler(io.BytesIO(text), tensors).load())

    def named(self) -> dict[str, typing.Any]:
        """For a checkpoint: `model.NAME` as in the model's state_dict, `state.I.N` for the Nth tensor of another object, and `state.I` for the
        rest of each."""
        found: dict[str, typing.Any] = {}
        for index, each in enumerate(self._objects):
            text, tensors = _split(each.state_dict())
            names = [f"model.{name}" for name in each.state_dict()] if index == 0 else []
            if len(names) != len(tensors):
                names = [f"state.{index}.{number}" for number in range(len(tensors))]
            found.update(zip(names, tensors))
            found[f"state.{index}"] = pickle.dumps((text, names))
        return found

    def take(self, named: dict[str, typing.Any]) -> None:
        """What `named` gave, perhaps in another process. LockstepError: these objects are built otherwise."""
        for index, each in enumerate(self._objects):
            if f"state.{index}" not in named:
                raise LockstepError(f"the checkpoint has no state of {type(each).__name__}: the job that saved it joined with fewer arguments")
            text, names = pickle.loads(named[f"state.{index}"])
            _load(each, _Unpickler(io.BytesIO(text), [named[name] for name in names]).load())

    def _send_bytes(self, text: bytes, move: Move) -> None:
        move(torch.tensor([len(text)], device=self._device))
        _move(torch.frombuffer(bytearray(text), dtype=torch.uint8), move, self._device)

    def _receive_bytes(self, move: Move) -> bytes:
        length = torch.zeros(1, dtype=torch.int64, device=self._device)
        move(length)
        return _move(torch.empty(int(length), dtype=torch.uint8, device=self._device), move, self._device).cpu().numpy().tobytes()


def _expect_same(module: torch.nn.Module, own: list[torch.Tensor], shapes: list[_Shape]) -> None:
    names = list(module.state_dict())
    if len(own) != len(shapes):
        raise LockstepError(f"{type(module).__name__} has {len(own)} parameters and buffers here and {len(shapes)} on another rank: "
                            "every rank must build the same model")
    for name, tensor, (shape, dtype) in zip(names, own, shapes):
        if (tensor.shape, tensor.dtype) != (shape, dtype):
            raise LockstepError(f"{type(module).__name__}: {name} is {tuple(tensor.shape)}, {tensor.dtype} here and {tuple(shape)}, {dtype} on "
                                "another rank: every rank must build the same model")


def _load(each: Stateful, state: dict[str, typing.Any]) -> None:
    try:
        each.load_state_dict(state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise LockstepError(f"{type(each).__name__} does not accept the state of another rank or of a checkpoint, so it was built otherwise there: {error}") from error
