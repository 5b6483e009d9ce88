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

from lockstep.errors import LockstepError

if typing.TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from lockstep.rounds import Round

INCOMPLETE = -1  # the step of a state that a rank does not have, or not all of it
_UNKNOWN_ROUND = -1  # of a state from a checkpoint
_PIECE_BYTES = 64 << 20
Move = typing.Callable[[torch.Tensor], typing.Any]


class Form(typing.NamedTuple):
    """What a tensor is like. `placements`: of one that is sharded (DTensor), so each rank of a pod has a part of it."""

    shape: torch.Size
    dtype: torch.dtype
    placements: typing.Any = None


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


def _form(tensor: torch.Tensor) -> Form:
    return Form(tensor.shape, tensor.dtype, getattr(tensor, "placements", None))


def part_of(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of it."""
    return typing.cast(torch.Tensor, tensor.to_local()) if hasattr(tensor, "to_local") else tensor


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
    def __init__(self, objects: typing.Sequence[Stateful], device: torch.device, step: int = INCOMPLETE, mesh: DeviceMesh | None = None,
                 added: dict[str, Stateful] | None = None) -> None:
        """`device`: that of tensors which the process group moves. `step`: how many steps were made with the objects. `mesh`: of sharded tensors.
        `added`: more objects, by their names in a checkpoint; one of an older release does not have them."""
        self._added = added or {}
        self._objects = {**{str(index): each for index, each in enumerate(objects)}, **self._added}
        self._device = device
        self._mesh = mesh
        self.step = step
        self.made_in = _UNKNOWN_ROUND
        """The round of the newest step. A step that is repeated in a later round may round differently, so it is another state."""

    def synchronise(self, round_: Round, load: typing.Callable[[], None] | None, facts: typing.Callable[[], list[int]]) -> tuple[str, list[list[int]]]:
        """Makes it equal on all ranks of a round that begins: the newest state counts. `load` looks for a checkpoint if no rank has a state. `facts`: what
        else each rank says. Returns the source of this rank's state, as protocol::Synced has it, and of each rank what it has said, after the newest step if
        it had that state before, else INCOMPLETE. RuntimeError: the round is over."""
        rows = self._gather(round_, facts())
        is_loaded = False
        if max(rows)[0] < 0 and load is not None:
            load()
            self.made_in = _UNKNOWN_ROUND
            rows, is_loaded = self._gather(round_, facts()), True
        newest, made_in = max((step, number) for step, number, *_ in rows)
        have_it = [(step, number) == (newest, made_in) for step, number, *_ in rows]
        source = self._take_newest(round_, newest, have_it, is_loaded)
        self.made_in = made_in
        return source, [[step if has_it else INCOMPLETE, *said] for has_it, (step, _, *said) in zip(have_it, rows)]

    def _take_newest(self, round_: Round, newest: int, have_it: list[bool], is_loaded: bool) -> str:
        if newest < 0:  # all ranks start: they take the state of rank 0
            transfer = self.send if round_.group_rank == 0 else self.receive
            transfer(lambda tensor: round_.broadcast(tensor, source=0))
            self.step = 0
            return "fresh"
        holders = [rank for rank, has_it in enumerate(have_it) if has_it]
        needy = [rank for rank, has_it in enumerate(have_it) if not has_it]
        if have_it[round_.group_rank]:
            for rank in needy[holders.index(round_.group_rank)::len(holders)]:
                self.send(functools.partial(round_.send, to=rank))
            return "checkpoint" if is_loaded else "kept"
        self.step = INCOMPLETE  # until all of it has arrived
        self.receive(functools.partial(round_.receive, source=holders[needy.index(round_.group_rank) % len(holders)]))
        self.step = newest
        return "peer"

    def _gather(self, round_: Round, facts: list[int]) -> list[list[int]]:
        return [each.tolist() for each in round_.gather(torch.tensor([self.step, self.made_in, *facts], device=self._device))]

    def send(self, move: Move) -> None:
        for each in self._objects.values():
            text, tensors = _split(each.state_dict())
            self._send_bytes(pickle.dumps((text, [_form(tensor) for tensor in tensors])), move)
            for tensor in tensors:
                _move(part_of(tensor), move, self._device)

    def receive(self, move: Move) -> None:
        """After an error the objects hold a mixture of both states."""
        for each in self._objects.values():
            text, forms = pickle.loads(self._receive_bytes(move))
            _, own = _split(each.state_dict())
            if isinstance(each, torch.nn.Module):
                _expect_same(each, own, forms)
            tensors = own if [_form(tensor) for tensor in own] == forms else [self.empty(form) for form in forms]
            for part in map(part_of, tensors):
                received = _move(part, move, self._device)
                if received is not part:
                    part.copy_(received)
            _load(each, _Unpickler(io.BytesIO(text), tensors).load())

    def named(self) -> dict[str, typing.Any]:
        """For a checkpoint: `model.NAME` as in the model's state_dict, `state.I.N` for the Nth tensor of another object, and `state.I` for the
        rest of each."""
        found: dict[str, typing.Any] = {}
        for key, each in self._objects.items():
            text, tensors = _split(each.state_dict())
            names = [f"model.{name}" for name in each.state_dict()] if key == "0" else []
            if len(names) != len(tensors):
                names = [f"state.{key}.{number}" for number in range(len(tensors))]
            found.update(zip(names, tensors))
            found[f"state.{key}"] = pickle.dumps((text, dict(zip(names, map(_form, tensors)))))
        return found

    @staticmethod
    def forms(named: dict[str, typing.Any]) -> dict[str, Form]:
        """What the tensors are like, by what `named` gave of the rest."""
        return {name: form for key, rest in named.items() if key.startswith("state.") for name, form in pickle.loads(rest)[1].items()}

    def take(self, named: dict[str, typing.Any]) -> None:
        """What `named` gave, perhaps in another process. LockstepError: these objects are built otherwise."""
        for key, each in self._objects.items():
            if f"state.{key}" not in named and key in self._added:
                continue
            if f"state.{key}" not in named:
                raise LockstepError(f"the checkpoint has no state of {type(each).__name__}: the job that saved it joined with fewer arguments")
            text, forms = pickle.loads(named[f"state.{key}"])
            _load(each, _Unpickler(io.BytesIO(text), [named[name] for name in forms]).load())

    def empty(self, form: Form) -> torch.Tensor:
        if form.placements is None or self._mesh is None:
            return torch.empty(form.shape, dtype=form.dtype, device=self._device)
        from torch.distributed.tensor import empty  # takes a while to import
        return empty(form.shape, dtype=form.dtype, device_mesh=self._mesh, placements=form.placements)

    def _send_bytes(self, text: bytes, move: Move) -> None:
        move(torch.tensor([len(text)], device=self._device))
        _move(torch.frombuffer(bytearray(text), dtype=torch.uint8), move, self._device)

    def _receive_bytes(self, move: Move) -> bytes:
        length = torch.zeros(1, dtype=torch.int64, device=self._device)
        move(length)
        return _move(torch.empty(int(length), dtype=torch.uint8, device=self._device), move, self._device).cpu().numpy().tobytes()


def _expect_same(module: torch.nn.Module, own: list[torch.Tensor], forms: list[Form]) -> None:
    names = list(module.state_dict())
    if len(own) != len(forms):
        raise LockstepError(f"{type(module).__name__} has {len(own)} parameters and buffers here and {len(forms)} on another rank: "
                            "every rank must build the same model")
    for name, tensor, form in zip(names, own, forms):
        mine = _form(tensor)
        if mine != form:
            raise LockstepError(f"{type(module).__name__}: {name} is {_text(mine)} here and {_text(form)} on another rank: every rank must build the "
                                "same model")


def _text(form: Form) -> str:
    return f"{tuple(form.shape)}, {form.dtype}" + (f", {form.placements}" if form.placements else "")


def _load(each: Stateful, state: dict[str, typing.Any]) -> None:
    try:
        each.load_state_dict(state)
    except (RuntimeError, ValueError, KeyError) as error:
        raise LockstepError(f"{type(each).__name__} does not accept the state of another rank or of a checkpoint, so it was built otherwise there: {error}") from error
