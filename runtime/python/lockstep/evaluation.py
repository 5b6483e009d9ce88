"""Evaluations that the ranks of a job divide between them.

Ranks exchange what they have found in the store of the round, not in collectives: a rank that has just joined does not know of an evaluation after
the step whose state it has received, and waits in the collectives of the next step meanwhile. The results belong to the state: a rank that has lost
the round before it knew a result takes that of the others, and one that comes to an evaluation later than all others does not repeat it: even one that
could not be reached for some steps.
"""
from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import typing

import torch
import torch.utils.data
from torch.nn.parallel import DistributedDataParallel

from lockstep.batches import Batch, size_of
from lockstep.errors import LockstepError
from lockstep.state import State

if typing.TYPE_CHECKING:
    from lockstep.averaging import Averaging
    from lockstep.job import Job
    from lockstep.pod import Pod
    from lockstep.rounds import Round

Metrics = typing.Dict[str, float]
Measure = typing.Callable[[Batch], typing.Dict[str, typing.Any]]
_SIGN_OF_LIFE_SECONDS, _PATIENCE_SECONDS = 0.1, 60.0
_NO_PLACE = (-1, 0, 0)
_KEPT_IN_LOOP = 1000  # results: of more steps than a rank may be behind that was away for a while
log = logging.getLogger("lockstep")


class Place(typing.NamedTuple):
    """Where in the script an evaluation is, the same on all ranks. A script comes to the greater ones later."""

    step: int
    is_outside: bool
    """Of the loops over batches. The body of one is entered by a rank that joins for the steps that come."""
    number: int
    """Of evaluations before it, after the same step."""


class Share(typing.NamedTuple):
    """What a rank has found in its share of the samples."""

    size: int
    """Of the data set."""
    samples: int
    sums: Metrics
    """Over its samples."""


class _Measured:
    """What a rank has found in some batches of its share. A round with the same shares continues there: an evaluation may take longer than rounds last."""

    def __init__(self, rank: int = 0, ranks: typing.Sequence[int] = ()) -> None:
        """`ranks`: that evaluate, this one among them. The ranks of a pod, which make each pass together, have made as many."""
        self.rank, self.ranks, self.batches = rank, ranks, 0
        self.sums: Metrics = {}

    def add(self, found: Metrics, samples: int) -> None:
        self.batches += 1
        for name, value in found.items():
            self.sums[name] = self.sums.get(name, 0.0) + (value * samples if samples else 0.0)


class Evaluations:
    """Those of one job. A Stateful."""

    def __init__(self, job: Job, averaging: Averaging, model: torch.nn.Module, pod: Pod) -> None:
        self._job, self._averaging, self._model, self._pod = job, averaging, model, pod
        self.have_places = True  # steps come from `batches`, so it is known at which one the script is
        self.by_framework = False  # whose loop comes to each evaluation, also on a rank that has missed the step
        self._results: dict[Place, Metrics] = {}
        self._place: Place | None = None  # of the newest one that the script has asked for
        self._is_in_loop = self._is_under_way = False
        self._measured = _Measured()
        self._round: Round | None = None
        self._began_at = 0  # the step at which the round began
        self._inside: list[int] = []  # which ranks of its group entered the round from within an evaluation

    def state_dict(self) -> dict[str, typing.Any]:
        return {"results": {tuple(place): result for place, result in self._results.items()}}

    def load_state_dict(self, state: dict[str, typing.Any]) -> None:
        self._results = {Place(*place): result for place, result in state["results"].items()}

    # ---- for Job

    @contextlib.contextmanager
    def in_loop(self) -> typing.Iterator[None]:
        """The body of a loop over batches. Where its step is not finished, the script comes to the evaluations of the step before it again."""
        self._place, self._is_in_loop = None, True
        try:
            yield
        finally:
            self._is_in_loop = False

    def facts(self) -> list[int]:
        """What a rank says about them when a round begins."""
        return [*map(int, max(self._results, default=_NO_PLACE)), int(self._is_under_way)]

    def enter_round(self, round_: Round, rows: list[list[int]]) -> None:
        """Makes the results equal on all ranks. `rows`: of each, as `State.synchronise` returns them. RuntimeError: the round is over."""
        step = max(rows)[0]
        newest = {rank: place for rank, (own, *place, _) in enumerate(rows) if own == step}  # the others have received the state of one of these
        source = max(newest, key=newest.__getitem__)
        if step < 0:  # training begins, perhaps with what has arrived of an earlier state
            self._results = {}
        elif any(place != newest[source] for place in newest.values()):
            state = State([self], round_.device)
            transfer = state.send if round_.group_rank == source else state.receive
            transfer(lambda tensor: round_.broadcast(tensor, source))
        self._round, self._began_at = round_, max(0, step)
        self._inside = [rank for rank, (own, *_, is_inside) in enumerate(rows) if is_inside and own == step]

    def leave_round(self) -> None:
        self._round = None

    def evaluate(self, step: int, has_batch: bool, dataset: torch.utils.data.Dataset[typing.Any], batch_size: int, measure: Measure,
                 loader: dict[str, typing.Any]) -> Metrics:
        """`step`: at which the script is; a framework may still be at one before the newest. `has_batch`: the one of the next step was read. Raises Stopped."""
        if self._averaging.step is not None or (has_batch and self._is_in_loop and not self.by_framework):
            raise LockstepError("evaluate after a step, or outside of the loop: the batch of a step is divided among the ranks of a round, which an "
                                "evaluation may leave")
        if not self.have_places:
            raise LockstepError("evaluate needs steps that come from job.batches, by which a rank that joins finds its place in the script")
        if self._averaging.open_steps > 0:
            raise LockstepError(f"{self._averaging.open_steps} steps were taken since the last average, so the models of the ranks differ: evaluate where "
                                "job.finished_steps is a multiple of average_every, or after an epoch")
        start = time.monotonic()
        before, here = self._place, (step, not (self._is_in_loop or self.by_framework))
        self._place = place = Place(*here, before.number + 1 if before is not None and before[:2] == here else 0)
        self._is_under_way, self._measured = True, _Measured()
        try:
            while place not in self._results:  # a round that begins may bring it
                self._job.enter_round()
                if place not in self._results:
                    self._try(place, dataset, batch_size, measure, loader)
        finally:
            self._is_under_way = False
            self._job.progress.spent(evaluate=time.monotonic() - start)
        return dict(self._results[place])

    # ---- one round

    def _try(self, place: Place, dataset: torch.utils.data.Dataset[typing.Any], batch_size: int, measure: Measure, loader: dict[str, typing.Any]) -> None:
        """Has a result afterwards, unless the round is over or the job is being stopped."""
        ranks, share, result = self._sharers(place), None, None
        if self._job.rank in ranks:
            with _evaluating(self._model, self._averaging.model):
                share = self._measure(ranks, dataset, batch_size, measure, loader)
        if self._round is None:
            result = None if share is None else _mean([share])
        else:
            try:
                result = self._exchange(self._round, place, ranks, share)
            except RuntimeError as error:
                if isinstance(error, LockstepError):
                    raise
                self._round.abort(str(error))
        self._job.says_phase("train")
        if self._pod.any(result is None)[0] or result is None:
            return
        for old in sorted(each for each in self._results if not each.is_outside)[:-_KEPT_IN_LOOP]:
            del self._results[old]
        self._results[place] = result
        if self._job.rank == ranks[0]:
            self._job.has_evaluated(result)

    def _sharers(self, place: Place) -> list[int]:
        """The ranks that share this evaluation in the round."""
        if self._round is None:
            return [0]
        size = self._round.world // self._round.group_size
        groups: typing.Iterable[int] = range(self._round.group_size)
        if not place.is_outside and place.step <= self._began_at:  # those that did not take this step have missed it
            is_under_way = place.step == self._began_at and self._inside
            groups = self._inside if is_under_way else [self._round.group_rank]  # alone, as where a framework evaluates before its first step
        return [group * size + rank for group in groups for rank in range(size)]

    def _measure(self, ranks: list[int], dataset: torch.utils.data.Dataset[typing.Any], batch_size: int, measure: Measure,
                 loader: dict[str, typing.Any]) -> Share | None:
        """Its share of the samples, neighbours in the data set. None: the round is over, or the job is being stopped."""
        size, place, job = size_of(dataset), ranks.index(self._job.rank), self._job
        ids = range(size * place // len(ranks), size * (place + 1) // len(ranks))
        batches = [list(ids[begin:begin + batch_size]) for begin in range(0, len(ids), batch_size)]
        if self._pod.mesh is not None:  # the ranks of a pod make each pass together: one without samples makes it with one that counts nothing
            most = -(-size // len(ranks))
            batches += [[]] * (-(-most // batch_size) - len(batches))
        epoch = job.finished_steps // max(1, job.progress.steps_per_epoch)
        if (self._measured.rank, self._measured.ranks) != (job.rank, ranks):
            self._measured = _Measured(job.rank, ranks)
        measured, signed = self._measured, 0.0
        batches = batches[measured.batches:]
        for own, data in zip(batches, torch.utils.data.DataLoader(dataset, batch_sampler=[own or [0] for own in batches], **loader)):
            if job.must_leave():
                return None
            if time.monotonic() - signed > _SIGN_OF_LIFE_SECONDS:
                job.says_phase("evaluate")
                signed = time.monotonic()
            measured.add(_numbers(measure(Batch(data, own, len(own) / size, size, job.finished_steps, epoch))), len(own))
        return Share(size, len(ids), measured.sums)

    def _exchange(self, round_: Round, place: Place, ranks: list[int], share: Share | None) -> Metrics | None:
        """The means over all samples. None: this rank leaves. RuntimeError: the round is over."""
        key = "/".join(map(str, ("evaluation", *place, ranks[0])))
        keys = {rank: f"{key}/{rank}" for rank in ranks}
        if round_.rank not in keys:
            return _result(round_, key)
        if share is None:
            round_.leave()
            return None
        round_.put(keys[round_.rank], json.dumps(share))
        with _patience(lambda: _name_missing(round_, place, keys)):
            if round_.rank == ranks[0]:
                round_.put(key, json.dumps(_mean([Share(*json.loads(each)) for each in round_.get(*keys.values())])))
            result = _result(round_, key)
        with contextlib.suppress(RuntimeError):  # one that ends its script then may take the store with it
            round_.wait_for_all(f"{key}/known", len(ranks))
        return result


def _result(round_: Round, key: str) -> Metrics:
    """Waits for it. RuntimeError: the round is over."""
    result: Metrics = json.loads(*round_.get(key))
    return result


@contextlib.contextmanager
def _patience(ends: typing.Callable[[], None]) -> typing.Iterator[None]:
    timer = threading.Timer(_PATIENCE_SECONDS, ends)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _name_missing(round_: Round, place: Place, keys: dict[int, str]) -> None:
    """The first of those that wait says who has not come: most likely the script does not call evaluate there."""
    with contextlib.suppress(RuntimeError):  # the round is over
        missing = [rank for rank, key in keys.items() if not round_.has(key)]
        if missing and round_.rank == min(keys.keys() - missing):
            log.warning("rank %d has waited for %g s in evaluate, after step %d, for rank %s: all ranks must call it after the same steps", round_.rank,
                        _PATIENCE_SECONDS, place.step, ", ".join(map(str, missing)))


def _mean(shares: list[Share]) -> Metrics:
    """LockstepError: the ranks have evaluated different things."""
    sizes = sorted({share.size for share in shares})
    if len(sizes) > 1:
        raise LockstepError(f"the data set of an evaluation must be the same on all ranks, but has {' or '.join(map(str, sizes))} samples")
    names = sorted({tuple(sorted(share.sums)) for share in shares if share.samples > 0})
    if len(names) > 1:
        raise LockstepError(f"what an evaluation measures must have the same names on all ranks, not {' or '.join(map(str, names))}")
    return {name: sum(share.sums.get(name, 0.0) for share in shares) / sizes[0] for name in names[0]}


def _numbers(values: dict[str, typing.Any]) -> Metrics:
    if not isinstance(values, dict) or not values:
        raise LockstepError(f"what evaluate calls must return means over its batch by name, such as {{\"loss\": loss}}, not {values!r:.100}")
    found = {}
    for name, value in values.items():
        try:
            found[name] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise LockstepError(f"what evaluate calls must return one number for each name, but {name!r} is {value!r:.100}") from error
    return found


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module, called: torch.nn.Module) -> typing.Iterator[None]:
    """Without gradients, and with modules that know it. `called`: what the script may call for it; DistributedDataParallel would begin a collective
    with buffers, which other ranks miss."""
    training = [module for module in model.modules() if module.training]
    is_synchronised = isinstance(called, DistributedDataParallel) and called.require_forward_param_sync
    if is_synchronised:
        called.require_forward_param_sync = False
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
        if is_synchronised:
            called.require_forward_param_sync = True
