"""A rank of an elastic job, from the script's side."""
from __future__ import annotations

import atexit
import contextlib
import math
import os
import socket
import time
import typing

import torch

from lockstep.averaging import Averaging, Final
from lockstep.batches import Batch, Batches, SamplePlan, size_of
from lockstep.control import Control, connection
from lockstep.errors import LockstepError, RoundBroken, Stopped
from lockstep.evaluation import Evaluations, Measure, Metrics
from lockstep.ledger import SampleLedger
from lockstep.pod import LOST_BY_ANOTHER, this_pod
from lockstep.progress import Progress
from lockstep.registration import Registration
from lockstep.rounds import BrokenRounds, Round, join_threads, listen
from lockstep.state import INCOMPLETE, State, Stateful
from lockstep.step import Step

if typing.TYPE_CHECKING:
    from lockstep.saved_state import SavedState

# For the supervisor to say that another rank has left, after an error that may come from that.
_ABORT_SECONDS = 2.0
_REASON_LENGTH = 500


class Job:
    """What `join` returns. To be used by one thread.

    Attributes:
        rank: Of this process, in the newest round.
        world: How many ranks that round has.
        round: Its number. It changes whenever a rank is lost or added.
    """

    def __init__(self, model: torch.nn.Module, state: typing.Sequence[Stateful], checkpoints: str | os.PathLike[str] | None, step: int,
                 averaging: typing.Callable[[Job, torch.nn.Module, typing.Sequence[Stateful]], Averaging]) -> None:
        self.rank, self.world, self.round = 0, 1, 0
        self.progress = Progress()
        self._averaging = averaging(self, model, state)
        self._pod, self._device = this_pod(), next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self.evaluations = Evaluations(self, self._averaging, model, self._pod)
        self._state = State([model, *state, *self._averaging.state], self._device, step if step > 0 else INCOMPLETE, self._pod.mesh,
                            {"evaluations": self.evaluations})
        self._saved_state: SavedState | None = None
        if checkpoints is not None:
            from lockstep.saved_state import SavedState  # DCP takes a while to import
            self._saved_state = SavedState(checkpoints, self._state, self._pod)
        self._saved_step, self._stall = step, 0.0  # of the newest save; seconds for which it made training wait
        self._saves_later = False  # when the steps are final
        self._optimizers = [each for each in state if isinstance(each, torch.optim.Optimizer)]
        self.registration = Registration(state)
        self._ledger = SampleLedger()
        self._broken_rounds = BrokenRounds()
        self._loop_begin = 0  # the step at which the next loop over batches begins
        self._current: Round | None = None
        self._leaves = False  # all ranks have agreed to leave the round
        self._batch: Batch | None = None  # of the next step, if it comes from `batches`
        for optimizer in self._optimizers:
            optimizer.register_step_pre_hook(self._before_update)
            optimizer.register_step_post_hook(self._after_update)
        self._control = connection()
        if self._control is not None:
            atexit.register(self._end, self._control)
        else:
            self._load()
            self._state.step = max(0, self._state.step)
        self.enter_round()

    # ---- the script

    @property
    def model(self) -> torch.nn.Module:
        """The model to call, one object for the life of the process: DistributedDataParallel; alone, or with `average_every`, the model itself."""
        return self._averaging.model

    @property
    def finished_steps(self) -> int:
        """Steps whose updates the model has. With `average_every`, those since the last average may be taken back when a rank is lost."""
        return self._state.step + self._averaging.open_steps

    def batches(self, dataset: torch.utils.data.Dataset[typing.Any], global_batch_size: int, *, epochs: int | None = None, steps: int | None = None,
                seed: int = 0, shuffle: bool = True, drop_last: bool = False,
                make_loader: typing.Callable[..., typing.Iterable[typing.Any]] = torch.utils.data.DataLoader, **loader: typing.Any) -> Batches:
        """This rank's share of each step, each sample once in an epoch.

        Either `epochs` or `steps` says how long. `loader`: arguments of DataLoader, such as `num_workers`, `collate_fn`, `pin_memory`. `make_loader`:
        another class than DataLoader, which gets the same arguments: the data set, `batch_sampler` and `loader`.

        Examples:
            >>> for batch in job.batches(dataset, global_batch_size=256, epochs=4, num_workers=2):
            ...     with job.step(): ...
        """
        if (epochs is None) == (steps is None):
            raise LockstepError("batches needs either epochs or steps")
        plan = SamplePlan(size_of(dataset), global_batch_size, seed=seed, shuffle=shuffle, drop_last=drop_last)
        count = steps if steps is not None else (epochs or 0) * plan.steps_per_epoch
        begin, self._loop_begin = self._loop_begin, self._loop_begin + count
        self.progress.total_steps, self.progress.steps_per_epoch = self._loop_begin, plan.steps_per_epoch
        if loader.get("num_workers") and make_loader is torch.utils.data.DataLoader:
            loader.setdefault("persistent_workers", True)
        return Batches(self, plan, begin, count, lambda shares: make_loader(dataset, batch_sampler=shares, **loader))

    def step(self) -> Step:
        """One optimizer step as a transaction: either it counts on all ranks, or it is repeated with the same samples.

        Forward, backward, `optimizer.step()` and `scheduler.step()` belong inside. Where a rank is lost meanwhile, the block ends without an
        error, and the loop over `batches` reads the step again.

        Examples:
            >>> with job.step() as step:
            ...     loss = loss_fn(job.model(batch.inputs), batch.targets)
            ...     step.report(loss)
            ...     loss.backward()
            ...     optimizer.step()
        """
        if self._batch is None:  # else it would be a batch of another round, which the failure of this step replaces
            self.enter_round()
        return Step(self)

    def evaluate(self, dataset: torch.utils.data.Dataset[typing.Any], batch_size: int, measure: Measure, **loader: typing.Any) -> Metrics:
        """The means over all samples, each evaluated by one of the ranks; the same numbers on all of them.

        `measure` returns means over its batch by name. It is called without gradients, and with the model in evaluation mode. What it calls `loss` and
        `accuracy` is shown in the job's status and metrics. `loader`: arguments of DataLoader. To be called by all ranks after the same steps, which
        come from `batches`. Where a rank is lost meanwhile, the others evaluate again; one that joins does not repeat what they have finished.

        Examples:
            >>> def measure(batch):
            ...     outputs = model(batch.inputs)
            ...     return {"loss": loss_fn(outputs, batch.targets), "accuracy": (outputs.argmax(1) == batch.targets).float().mean()}
            >>> job.evaluate(test_set, 256, measure, num_workers=2)["accuracy"]
            0.91
        """
        # After the newest loop; a rank that joins may be at an earlier one.
        return self.evaluations.evaluate(min(self.finished_steps, self._loop_begin), self._batch is not None, dataset, batch_size, measure, loader)

    def save(self) -> None:
        """Copies the state into memory, for which training waits, and stores it in the folder of `join` while training continues.

        To be called by all ranks after the same step; it does not wait for them. One rank of each pod has a copy in memory, which is still there
        when the script is started again in that pod; rank 0 stores its copy. While that still stores the last checkpoint, the new one is in
        memory only; the newest is stored at the end. With `average_every`, it saves after the next average. Of a sharded model, each rank of a
        pod saves its part, all of them together.

        Examples:
            >>> if job.finished_steps % 100 == 0:
            ...     job.save()
        """
        if self._saved_state is None:
            raise LockstepError("save needs a folder: lockstep.join(..., checkpoints=\"/checkpoints\")")
        self._saves_later = self._averaging.open_steps > 0
        if self._saves_later or self._saved_step == self.finished_steps or not self._saved_state.saves_here:
            return
        step, start = self.finished_steps, time.monotonic()
        self._saved_state.save(step, stores=self.rank < self._pod.size, on_stored=lambda uri: self._has_stored(step, uri, start))
        self._saved_step = step
        self._stall = time.monotonic() - start
        self.progress.spent(checkpoint=self._stall)

    def _has_stored(self, step: int, uri: str, start: float) -> None:
        if self._control is not None:
            self._control.send("saved", step=step, uri=uri, seconds=time.monotonic() - start, stallSeconds=self._stall)

    # ---- rounds

    def enter_round(self) -> None:
        """Enters the next round if the current one is over. Afterwards the state is equal on all ranks. Raises Stopped."""
        control = self._control
        if control is None:
            return
        self._leave_if_over(control)
        while self._current is None:
            with contextlib.closing(listen()) as listener:
                self._expect_one_step()
                control.announce(self._state.step, listener.getsockname()[1])
                assignment = control.wait_for_assignment()
                try:
                    self._enter(control, assignment, listener)
                except RuntimeError as error:
                    self._break(control, assignment["round"], str(error))
                if self._pod.any(self._current is None)[0] and self._current is not None:
                    self._break(control, assignment["round"], LOST_BY_ANOTHER)

    def _expect_one_step(self) -> None:
        """A pod has a state if all of its ranks have their parts, of the same step."""
        if any(step != self._state.step for step, in self._pod.gather(self._state.step)):
            self._state.step = INCOMPLETE

    def _leave_if_over(self, control: Control) -> None:
        if self._current is None:
            return
        is_broken, stops = self._pod.any(self._current.failure is not None, control.stop_at is not None)
        if is_broken:
            self._break(control, self._current.number, self._current.failure or LOST_BY_ANOTHER)
        elif self._leaves:
            self._drop(control)
        if self._current is None and stops:
            if self._saved_state is not None:
                self.save()
            raise Stopped

    def _enter(self, control: Control, assignment: dict[str, typing.Any], listener: socket.socket) -> None:
        start = time.monotonic()
        control.send("phase", phase="sync")
        self._current = round_ = Round(assignment, self._device, self._pod)
        self._leaves = False
        control.attach(round_)
        round_.connect(listener)
        source, rows = self._state.synchronise(round_, None if self._saved_state is None else self._load, self.evaluations.facts)
        self.rank, self.world, self.round = round_.rank, round_.world, round_.number
        os.environ.update(RANK=str(round_.rank), WORLD_SIZE=str(round_.world), LOCKSTEP_ROUND=str(round_.number))
        self.evaluations.enter_round(round_, rows)
        self._averaging.enter_round(round_)
        self._ledger.enter_round(round_.number, round_.rank)
        self.progress.enter_round(round_.number, self.finished_steps)
        control.send("synced", round=round_.number, step=self.finished_steps, source=source, seconds=time.monotonic() - start)
        control.send("phase", phase="train")

    def _load(self) -> None:
        """The newest checkpoint that this rank finds; another rank may have a newer one in its memory."""
        if self._saved_state is not None:
            self._saved_step = self._saved_state.load()
            self._state.step = self._saved_step if self._saved_step > 0 else INCOMPLETE

    def _break(self, control: Control, number: int, reason: str) -> None:
        control.send("broken", round=number, reason=reason[:_REASON_LENGTH])
        self._drop(control)
        self._averaging.take_back()
        self._broken_rounds.broke(reason)

    def _drop(self, control: Control) -> None:
        control.detach()
        if self._current is None:
            return
        self._averaging.leave_round()
        self.evaluations.leave_round()
        self._current.drop()  # the destructor of the group closes its connections, for which other ranks wait
        self._current = None

    def _end(self, control: Control) -> None:
        """The interpreter ends, which may take long, and its other threads do not run any more."""
        control.send("phase", phase="program")  # nothing is known of it from now on
        self._drop(control)
        join_threads(control.stop_at)

    # ---- for Batches and Step

    def reads(self, batch: Batch, seconds: float) -> None:
        """The batch of the next step, and how long it took to read."""
        self._batch = batch
        self.progress.spent(data=seconds)

    def reports(self) -> None:
        if self._control is not None:
            self._control.send("progress", **self.progress.message())
            self._control.send("usage", **self.progress.usage())

    def begins(self, step: Step) -> None:
        step.number, step.batch, self._batch = self.finished_steps, self._batch, None
        self._averaging.begin(step)
        self.evaluations.have_places = step.batch is not None
        if step.batch is not None:
            self._ledger.contribute(step.number, step.batch.ids)

    def accumulate(self, batch: Batch, size: int) -> typing.Iterator[Batch]:
        return self._averaging.accumulate(batch, size)

    def total(self, value: float) -> float:
        return self._averaging.total(value)

    def mean_loss(self, step: Step) -> float:
        return self._averaging.mean_loss(step)

    def commits(self, step: Step) -> bool:
        """The optimizer has made its update. False: the round has failed, and the step was taken back."""
        final = self._averaging.finish(step)
        self._averaging.step = None
        self.progress.step_ended(step.seconds)
        if final is not None:
            self._commits(final)
        elif self._averaging.open_steps > 0:
            self.progress.under_way(self._averaging.open_steps)
        else:
            return False
        if self._control is not None and self.progress.is_due():
            self.reports()
        return True

    def _commits(self, final: Final) -> None:
        for number in range(self._state.step, self._state.step + final.steps):
            self._ledger.commit(number)
        self._state.step += final.steps
        self._state.made_in = self.round
        self._broken_rounds.made_step()
        rate = self._optimizers[0].param_groups[0]["lr"] if self._optimizers else 0.0
        self.progress.finished(self._state.step, final, float(rate))
        self._leaves = final.leaves
        if final.saves and self._control is not None:
            self._control.save_requested = False
        if self._saved_state is not None:
            self._saved_state.expect_saves()
        if self._saves_later or final.saves and self._saved_state is not None:
            self.save()

    def survives(self, error: BaseException) -> bool:
        """Whether a step has failed because a rank has left the round, so it is to be repeated."""
        self._averaging.step = None
        round_, control = self._current, self._control
        if round_ is None or control is None or not isinstance(error, RuntimeError):
            return False
        is_over = round_.failure is not None or control.wait_for_abort(round_.number, _ABORT_SECONDS)
        # Ranks of a pod that share a state end a step together, by this error only.
        return is_over and (self._pod.mesh is None or isinstance(error, RoundBroken))

    def takes_back(self) -> bool:
        """The updates of a step that is to be repeated. False: they cannot be taken back, so the step counts."""
        return self._averaging.take_back()

    def fails(self, error: BaseException) -> None:
        """The script's own error, which ends it unless the script handles it."""
        if self._control is not None and isinstance(error, Exception):
            self._control.send("failed", exitCode=1, reason=f"{type(error).__name__}: {error}"[:_REASON_LENGTH], failedStep=self.finished_steps)

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: typing.Any) -> None:
        if self._averaging.step is not None:
            self._averaging.before_update(optimizer)

    def _after_update(self, *_: typing.Any) -> None:
        if self._averaging.step is not None:
            self._averaging.step.has_updated = True

    # ---- for Averaging and Evaluations

    def requests(self) -> tuple[bool, bool]:
        """Whether this rank asks all ranks to leave the round, and to save."""
        control = self._control
        if control is None:
            return False, False
        # A requested checkpoint is stored, so it waits for the one that is being stored.
        saves = control.save_requested and self._saved_state is not None and not self._saved_state.is_storing
        return control.yield_requested or control.stop_at is not None, saves

    def says_phase(self, phase: str) -> None:
        if self._control is not None:
            self._control.send("phase", phase=phase)

    def must_leave(self) -> bool:
        """For what takes long between the steps: the round has failed, or the pod is being stopped. Then the next `enter_round` leaves it."""
        if self._current is None or self._control is None:
            return False
        has_failed, stops = self._pod.any(self._current.failure is not None, self._control.stop_at is not None)
        self._leaves = self._leaves or stops
        return has_failed or stops

    def has_evaluated(self, result: Metrics) -> None:
        if self._control is not None:
            shown = {name: result[name] for name in ("loss", "accuracy") if math.isfinite(result.get(name, math.nan))}
            self._control.send("evaluated", step=self.finished_steps, epoch=self.progress.epoch, **shown)
