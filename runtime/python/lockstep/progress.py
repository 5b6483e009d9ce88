"""What this rank reports about its steps (protocol::Progress)."""
from __future__ import annotations

import time
import typing

_REPORT_SECONDS = 0.1
_SMOOTHING = 0.1  # the part of the newest step in the mean of samples per second


class Progress:
    def __init__(self) -> None:
        self.total_steps = 0  # 0: not known
        self.steps_per_epoch = 0
        self.loss = 0.0  # of the newest step, over the global batch
        self._fields: dict[str, typing.Any] = {}
        self._seconds: dict[str, float] = {}
        self._steps = self._samples = 0  # of this process
        self._rate = 0.0  # samples of all ranks per second
        self._finished_at = 0.0  # when the newest step was finished; 0: none in this round
        self._sent = 0.0

    def enter_round(self, number: int, step: int) -> None:
        self._fields.update(round=number, step=step)
        self._finished_at = 0.0

    def spent(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def finished(self, step: int, samples: int, global_size: int, seconds: dict[str, float], learning_rate: float) -> None:
        for phase, spent in seconds.items():
            self.spent(phase, spent)
        now = time.monotonic()
        rate = global_size / (now - self._finished_at) if self._finished_at else 0.0
        self._rate = rate if self._rate == 0 else self._rate + _SMOOTHING * (rate - self._rate)
        self._finished_at = now
        self._steps += 1
        self._samples += samples
        self._fields.update(step=step, learningRate=learning_rate)

    def message(self) -> dict[str, typing.Any]:
        self._sent = time.monotonic()
        epoch = self._fields.get("step", 0) / self.steps_per_epoch if self.steps_per_epoch else 0.0
        return {**self._fields, "totalSteps": self.total_steps, "epoch": epoch, "loss": self.loss, "samplesPerSecond": self._rate, "stepsTotal": self._steps,
                "samplesTotal": self._samples, "phaseSeconds": self._seconds}

    def message_if_due(self) -> dict[str, typing.Any] | None:
        return self.message() if time.monotonic() - self._sent >= _REPORT_SECONDS else None
