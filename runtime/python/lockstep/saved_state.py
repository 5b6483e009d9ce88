"""The state of a job as a checkpoint (state.py names what is in it). All pods have the same, so each saves and loads it alone: one rank of it, or
all together where they share the state.
"""
from __future__ import annotations

import inspect
import io
import logging
import os
import threading
import typing
import warnings

import torch
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from lockstep import storing
from lockstep.checkpoint_reader import Reader
from lockstep.checkpoint_writer import Writer, fits
from lockstep.errors import LockstepError
from lockstep.memory import allocate_all
from lockstep.pod import Pod
from lockstep.state import Form, State, part_of

log = logging.getLogger("lockstep")
# By this process alone, although there is a process group. Older releases have `no_dist` only in the functions that these replace.
_has_no_dist = "no_dist" in inspect.signature(state_dict_saver.save).parameters
_save = state_dict_saver.save if _has_no_dist else state_dict_saver.save_state_dict
_load = state_dict_loader.load if _has_no_dist else state_dict_loader.load_state_dict


class SavedState:
    def __init__(self, folder: str | os.PathLike[str], state: State, pod: Pod) -> None:
        self._folder, self._state, self._pod = folder, state, pod
        self._alone = pod.size == 1
        # Else another rank of the pod has the same state, and saves it.
        self.saves_here = pod.mesh is not None or os.environ.get("LOCAL_RANK", "0") == "0"
        self._is_expected = False

    def load(self) -> int:
        """The newest checkpoint that is not damaged, in memory or stored. Returns its step; 0: there is none."""
        at_most: int | None = None
        while (reader := Reader(self._folder, at_most=at_most, no_dist=self._alone)).step is not None:
            try:
                named = self._empty(reader)
                _quietly(lambda: _load(named, storage_reader=reader, no_dist=self._alone))
            except (OSError, CheckpointException) as error:
                log.warning("the checkpoint of step %d is not used: %s", reader.step, _cause(error))
                at_most = reader.step - 1
                continue
            self._state.take(named)
            return reader.step
        return 0

    def expect_saves(self) -> None:
        """After a step, when the optimizer has its state: allocates the memory, once."""
        if self._is_expected or not self.saves_here:
            return
        self._is_expected = True
        threading.Thread(target=allocate_all, args=(self._bytes(self._state.named()),), name="lockstep-allocation", daemon=True).start()

    @staticmethod
    def _bytes(named: dict[str, typing.Any]) -> int:
        return sum(part_of(each).nbytes for each in named.values() if isinstance(each, torch.Tensor))

    @property
    def is_storing(self) -> bool:
        return storing.is_busy()

    def save(self, step: int, *, stores: bool, on_stored: typing.Callable[[str], None]) -> None:
        named = self._state.named()
        if not stores and self._pod.any(not fits(self._bytes(named)))[0]:
            log.warning("there is no copy of step %d in the memory of this pod: it does not fit", step)
            return
        writer = Writer(self._folder, step, stores=stores, on_stored=on_stored)
        try:
            _quietly(lambda: _save(named, storage_writer=writer, no_dist=self._alone))
        except (OSError, CheckpointException) as error:  # of what does not fit into memory
            log.warning("the checkpoint of step %d is not stored: %s", step, _cause(error))

    def _empty(self, reader: Reader) -> dict[str, typing.Any]:
        """What DCP reads into. LockstepError: the state was not sharded when it was saved."""
        entries = reader.read_metadata().state_dict_metadata
        tensors = {name: entry for name, entry in entries.items() if isinstance(entry, TensorStorageMetadata)}
        found: dict[str, typing.Any] = {name: io.BytesIO() for name in entries.keys() - tensors.keys()}
        forms: dict[str, Form] = {}
        if self._pod.mesh is not None:
            _quietly(lambda: _load(found, storage_reader=reader, no_dist=self._alone))
            forms = State.forms(found)
            if not any(form.placements for form in forms.values()):
                raise LockstepError(f"the checkpoint of step {reader.step} was saved by a job whose model was not sharded, and this one is: "
                                    "use another folder")
        for name, entry in tensors.items():
            is_sharded = name in forms and forms[name].placements is not None
            found[name] = self._state.empty(forms[name]) if is_sharded else torch.empty(entry.size, dtype=entry.properties.dtype)
        return found


def _cause(error: OSError | CheckpointException) -> BaseException:
    return next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error


def _quietly(action: typing.Callable[[], typing.Any]) -> None:
    with warnings.catch_warnings():  # DCP warns that it saves as one process, which is what we ask for
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        warnings.filterwarnings("ignore", category=FutureWarning)
        action()
