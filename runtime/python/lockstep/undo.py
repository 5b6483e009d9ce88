"""A copy of the state of a job from before an update, to take back what is not final when a rank is lost."""
from __future__ import annotations

import copy
import typing

if typing.TYPE_CHECKING:
    from lockstep.state import Stateful


class Undo:
    def __init__(self, objects: typing.Sequence[Stateful]) -> None:
        self._objects = objects
        self.before: list[dict[str, typing.Any]] | None = None
        """The states of the objects; None: nothing is remembered."""

    def remember(self) -> None:
        """Only the first call since the last `forget` or `restore` counts."""
        if self.before is None:
            self.before = [copy.deepcopy(each.state_dict()) for each in self._objects]

    def forget(self) -> None:
        self.before = None

    def restore(self) -> bool:
        """Whether there was something to take back."""
        if self.before is None:
            return False
        for each, state in zip(self._objects, self.before):
            each.load_state_dict(state)
        self.before = None
        return True
