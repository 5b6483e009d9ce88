"""The state of a job as one line, which is drawn again in a terminal and in a notebook."""
from __future__ import annotations

import shutil
import sys
import typing

_WIDTH = 20
_CLEAR = "\r\033[K"


class ProgressLine:
    """Where the output is a file, each new line remains."""

    def __init__(self, name: str, is_shown: bool) -> None:
        self._name, self._is_shown = name, is_shown
        self._is_redrawn = sys.stdout.isatty() or "ipykernel" in sys.modules
        self._last = ""

    def show(self, status: typing.Mapping[str, typing.Any]) -> None:
        line = f"{self._name}  {line_of(status)}"
        if sys.stdout.isatty():  # a line that is wrapped cannot be drawn again
            line = line[:shutil.get_terminal_size().columns - 1]
        if self._is_shown and line != self._last:
            self._last = line
            print(f"{_CLEAR}{line}" if self._is_redrawn else line, end="" if self._is_redrawn else "\n", flush=True)

    def say(self, text: str) -> None:
        """A line that remains."""
        if self._is_shown:
            print(f"{_CLEAR if self._is_redrawn else ''}{text}", flush=True)
            self._last = ""

    def close(self) -> None:
        if self._is_shown and self._is_redrawn and self._last:
            print(flush=True)


def line_of(status: typing.Mapping[str, typing.Any]) -> str:
    state = str(status.get("state", "Created"))
    parts = [state]
    stalled = condition(status, "Stalled")
    if stalled and state == "Stalled":
        parts.append(f"{stalled.get('reason', '')}: {stalled.get('message', '')}")
    progress = status.get("progress", {})
    step, total = progress.get("step"), progress.get("totalSteps")
    if step is not None and total:
        full = min(_WIDTH, _WIDTH * step // total)
        parts.append(f"[{'=' * full}{' ' * (_WIDTH - full)}] step {step} of {total} ({100 * step // total} %)")
    elif step is not None:
        parts.append(f"step {step}")
    for field, text in (("loss", "loss {:.4g}"), ("samplesPerSecond", "{:.4g} samples/s")):
        if isinstance(progress.get(field), (int, float)):
            parts.append(text.format(progress[field]))
    return "  ".join(parts)


def condition(status: typing.Mapping[str, typing.Any], kind: str) -> typing.Mapping[str, typing.Any] | None:
    """The condition of that type, if it is true."""
    for each in status.get("conditions", []):
        if each.get("type") == kind and each.get("status") == "True":
            return typing.cast("typing.Mapping[str, typing.Any]", each)
    return None


def is_finished(status: typing.Mapping[str, typing.Any]) -> bool:
    return condition(status, "Complete") is not None or condition(status, "Failed") is not None
