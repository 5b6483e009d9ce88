"""The state of a job as a checkpoint. All ranks have the same, so each saves and loads it alone (state.py names what is in it)."""
from __future__ import annotations

import inspect
import io
import logging
import os
import typing
import warnings

import torch
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from lockstep import storing
from lockstep.checkpoint_reader import Reader
from lockstep.checkpoint_writer import Writer, fits
from lockstep.state import State

log = logging.getLogger("lockstep")
# By this process alone, although there is a process group. Older releases have `no_dist` only in the functions that these replace.
_has_no_dist = "no_dist" in inspect.signature(state_dict_saver.save).parameters
_save = state_dict_saver.save if _has_no_dist else state_dict_saver.save_state_dict
_load = state_dict_loader.load if _has_no_dist else state_dict_loader.load_state_dict


class SavedState:
    def __init__(self, folder: str | os.PathLike[str], state: State) -> None:
        self._folder, self._state = folder, state

    def load(self) -> int:
        """The newest checkpoint that is not damaged, in memory or stored. Returns its step; 0: there is none."""
        at_most: int | None = None
        while (reader := Reader(self._folder, at_most=at_most, no_dist=True)).step is not None:
            try:
                named = _empty(reader)
                _alone(lambda: _load(named, storage_reader=reader, no_dist=True))
            except (OSError, CheckpointException) as error:
                log.warning("the checkpoint of step %d is not used: %s", reader.step, _cause(error))
                at_most = reader.step - 1
                continue
            self._state.take(named)
            return reader.step
        return 0

    @property
    def is_storing(self) -> bool:
        return storing.is_busy()

    def save(self, step: int, *, stores: bool, on_stored: typing.Callable[[str], None]) -> None:
        named = self._state.named()
        if not stores and not fits(sum(each.nbytes for each in named.values() if isinstance(each, torch.Tensor))):
            log.warning("there is no copy of step %d in the memory of this pod: it does not fit", step)
            return
        writer = Writer(self._folder, step, stores=stores, on_stored=on_stored)
        try:
            _alone(lambda: _save(named, storage_writer=writer, no_dist=True))
        except (OSError, CheckpointException) as error:  # of what does not fit into memory
            log.warning("the checkpoint of step %d is not stored: %s", step, _cause(error))


def _cause(error: OSError | CheckpointException) -> BaseException:
    return next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error


def _empty(reader: Reader) -> dict[str, typing.Any]:
    """What DCP reads into."""
    entries = reader.read_metadata().state_dict_metadata
    return {name: torch.empty(entry.size, dtype=entry.properties.dtype) if isinstance(entry, TensorStorageMetadata) else io.BytesIO()
            for name, entry in entries.items()}


def _alone(action: typing.Callable[[], typing.Any]) -> None:
    with warnings.catch_warnings():  # DCP warns that it saves as one process, which is what we ask for
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        warnings.filterwarnings("ignore", category=FutureWarning)
        action()
