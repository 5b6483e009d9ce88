"""What this rank reports about its steps (protocol::Progress and protocol::Usage)."""
from __future__ import annotations

import bisect
import time
import typing

if typing.TYPE_CHECKING:
    from lockstep.averaging import Final

_REPORT_SECONDS = 0.1
_SMOOTHING = 0.1  # the part of the newest step in the mean of samples per second
# Of the histogram of step times: runtime/common/protocol/step_times.h.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 150)


class Progress:
    def __init__(self) -> None:
        self.total_steps = 0  # 0: not known
        self.steps_per_epoch = 0
        self.loss = 0.0  # of the newest step or window, over the samples of all ranks
        self._fields: dict[str, typing.Any] = {}
        self._seconds: dict[str, float] = {}  # in each phase
        self._last_step: tuple[float, float] | None = None  # in this round: when it ended, and the seconds of all phases until then
        self._steps = self._samples = self._global_samples = 0  # of this process; the last: of all ranks in its steps
        self.communicated = 0  # bytes that this rank has given to sums
        self.repeated = 0  # steps that were taken back
        self._counts, self._step_seconds = [0] * (len(_BOUNDS) + 1), 0.0
        self._rate = 0.0  # samples of all ranks per second
        self._finished_at = 0.0  # when the newest step was finished; 0: none in this round
        self._sent = 0.0

    def enter_round(self, number: int, step: int) -> None:
        self._fields.update(round=number, step=step, stepsUnderWay=0)
        self._finished_at = 0.0
        self._last_step = None
        self._sent = 0.0  # the first step of a round is reported at once, not before: it says that the job has recovered

    def spent(self, **seconds: float) -> None:
        """In each phase."""
        for phase, spent in seconds.items():
            self._seconds[phase] = self._seconds.get(phase, 0.0) + spent

    def step_begins(self) -> None:
        """What the script has done since the last step, and no phase contains, is the phase `script`."""
        if self._last_step:
            ended_at, spent = self._last_step
            self.spent(script=max(0.0, time.monotonic() - ended_at - (sum(self._seconds.values()) - spent)))

    def step_ended(self, seconds: dict[str, float]) -> None:
        """In each phase."""
        self.spent(**seconds)
        self._last_step = time.monotonic(), sum(self._seconds.values())

    def under_way(self, steps: int) -> None:
        """Steps that are taken, but not final."""
        self._fields.update(stepsUnderWay=steps)

    def finished(self, step: int, final: Final, learning_rate: float) -> None:
        now = time.monotonic()
        if self._finished_at:
            self._timed(now - self._finished_at, final)
        self._finished_at = now
        self._steps += final.steps
        self._samples += final.samples
        self._global_samples += final.global_samples
        self.loss = final.loss
        self._fields.update(step=step, stepsUnderWay=0, learningRate=learning_rate)

    def _timed(self, took: float, final: Final) -> None:
        rate = final.global_samples / took
        self._rate = rate if self._rate == 0 else self._rate + _SMOOTHING * (rate - self._rate)
        self._counts[bisect.bisect_left(_BOUNDS, took / final.steps)] += final.steps
        self._step_seconds += took

    @property
    def epoch(self) -> float:
        """How many epochs the finished steps are."""
        return float(self._fields.get("step", 0) / self.steps_per_epoch) if self.steps_per_epoch else 0.0

    def usage(self) -> dict[str, typing.Any]:
        return {"stepTimes": {"counts": self._counts, "seconds": self._step_seconds}, "communicationBytesTotal": self.communicated}

    def message(self) -> dict[str, typing.Any]:
        self._sent = time.monotonic()
        if not self._fields.get("stepsUnderWay"):  # ranks are compared by their times per final step
            self._fields["phaseSeconds"] = dict(self._seconds)
        return {**self._fields, "totalSteps": self.total_steps, "epoch": self.epoch, "loss": self.loss, "samplesPerSecond": self._rate, "stepsTotal": self._steps,
                "samplesTotal": self._samples, "globalSamplesTotal": self._global_samples, "repeatedStepsTotal": self.repeated}

    def is_due(self) -> bool:
        return time.monotonic() - self._sent >= _REPORT_SECONDS
