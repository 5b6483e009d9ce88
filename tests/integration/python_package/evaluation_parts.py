"""What ranks of one process exchange about evaluations; evaluations.py starts it in an interpreter that has PyTorch."""
import concurrent.futures
import threading
import types

import pytest
import torch
import torch.distributed as dist

import lockstep
from lockstep import evaluation
from lockstep.evaluation import Evaluations, Place, Share, _evaluating, _mean
from lockstep.pod import Pod
from lockstep.rounds import Round, listen
from lockstep.state import State

LOOP, AFTER = Place(4, False, 0), Place(4, True, 0)


@pytest.fixture
def enter():
    """Enters a round of two ranks, which had states of these steps."""
    rounds = []

    def enter(evaluations, steps):
        with listen() as listener, listen() as unused, concurrent.futures.ThreadPoolExecutor() as threads:
            place = {"round": len(rounds), "world": 2, "storeHost": "127.0.0.1", "storePort": listener.getsockname()[1]}
            new = [Round({**place, "rank": rank}, torch.device("cpu"), Pod(0, 1, mesh=True)) for rank in range(2)]
            rounds.extend(new)
            rows = [[step, *each.facts()] for step, each in zip(steps, evaluations)]

            def join(number, own):
                new[number].connect(own)
                evaluations[number].enter_round(new[number], rows)

            for done in [threads.submit(join, number, own) for number, own in enumerate((listener, unused))]:
                done.result()
        return new

    yield enter
    for each in rounds:
        each.drop()


@pytest.fixture
def ranks():
    model = torch.nn.Linear(2, 1)
    averaging = types.SimpleNamespace(model=model, open_steps=0)
    return [Evaluations(types.SimpleNamespace(rank=rank), averaging, model, Pod()) for rank in range(2)]


def test_an_evaluation_does_not_wait_for_a_rank_that_joins_after_its_step(ranks, enter):
    ranks[1]._is_under_way = True  # after step 4, when rank 0 joined
    enter(ranks, steps=[4, 4])
    for each in ranks:
        assert each._sharers(LOOP) == [1]
        assert each._sharers(AFTER) == [0, 1]
        assert each._sharers(Place(5, False, 0)) == [0, 1]


def test_nobody_waits_for_a_rank_in_an_evaluation_that_the_others_have_left_behind(ranks, enter):
    """It was away, and is still there when it receives the newest state. It does not wait for them either."""
    ranks[1]._is_under_way = True
    enter(ranks, steps=[4, -1])
    for number, each in enumerate(ranks):
        assert each._sharers(LOOP) == each._sharers(Place(3, False, 0)) == [number]
        assert each._sharers(Place(5, False, 0)) == [0, 1]


def test_results_of_the_newest_steps_are_kept(monkeypatch):
    measured = []
    job, _ = evaluate(None)
    job.evaluations.by_framework = True
    monkeypatch.setattr(evaluation, "_KEPT_IN_LOOP", 2)

    def after(step):
        return job.evaluations.evaluate(step, False, torch.utils.data.TensorDataset(torch.arange(3.)), 4, lambda _: measured.append(step) or {"at": step}, {})
    for step in (1, 2, 3, 4, 3, 4):
        assert after(step) == {"at": step}
    assert measured == [1, 2, 3, 4]
    after(1)
    assert measured == [1, 2, 3, 4, 1]


def test_a_rank_takes_the_result_that_it_has_lost(ranks, enter):
    ranks[1]._results = {LOOP: {"loss": 0.1}}
    ranks[0]._is_under_way = True
    enter(ranks, steps=[4, 4])
    assert all(each._results == {LOOP: {"loss": 0.1}} for each in ranks)


def test_results_of_a_rank_without_the_newest_state_do_not_count(ranks, enter):
    """It has received that state, and the results with it."""
    ranks[0]._results = {LOOP: {"loss": 0.1}}
    ranks[1].load_state_dict(ranks[0].state_dict())
    enter(ranks, steps=[4, -1])
    assert all(each._results == {LOOP: {"loss": 0.1}} and each._began_at == 4 for each in ranks)


def test_training_that_begins_has_no_results(ranks, enter):
    """One rank had received them with a part of an earlier state, which nobody has any more."""
    ranks[0]._results = {LOOP: {"loss": 0.1}}
    enter(ranks, steps=[-1, -1])
    assert all(each._results == {} for each in ranks)


def test_a_checkpoint_has_the_results_and_one_of_an_older_release_has_none(ranks):
    ranks[0]._results = {LOOP: {"loss": 0.1}}
    before, after = [State([torch.nn.Linear(2, 1)], torch.device("cpu"), added={"evaluations": each}) for each in ranks]
    saved = before.named()
    after.take({name: value for name, value in saved.items() if "evaluations" not in name})
    assert ranks[1]._results == {}
    after.take(saved)
    assert ranks[1]._results == {LOOP: {"loss": 0.1}}


def test_all_get_the_means(ranks, enter):
    rounds = enter(ranks, steps=[3, 3])
    shares = [Share(4, 1, {"loss": 3.0}), Share(4, 3, {"loss": 1.0})]
    with concurrent.futures.ThreadPoolExecutor() as threads:
        found = [threads.submit(each._exchange, round_, LOOP, [0, 1], share) for each, round_, share in zip(ranks, rounds, shares)]
        assert [each.result() for each in found] == [{"loss": 1.0}] * 2


def test_one_that_leaves_keeps_nobody_waiting(ranks, enter):
    rounds = enter(ranks, steps=[3, 3])
    with concurrent.futures.ThreadPoolExecutor() as threads:
        waits = threads.submit(ranks[0]._exchange, rounds[0], LOOP, [0, 1], Share(4, 1, {"loss": 3.0}))
        assert ranks[1]._exchange(rounds[1], LOOP, [0, 1], None) is None
        with pytest.raises(RuntimeError, match="a rank has left the round"):
            waits.result()


def test_a_rank_that_has_missed_the_step_waits_for_the_result(ranks, enter):
    """As under a framework, whose loop comes to that evaluation nevertheless."""
    ranks[1]._is_under_way = True
    rounds = enter(ranks, steps=[4, 4])
    with concurrent.futures.ThreadPoolExecutor() as threads:
        waits = threads.submit(ranks[0]._exchange, rounds[0], LOOP, ranks[0]._sharers(LOOP), None)
        assert ranks[1]._exchange(rounds[1], LOOP, ranks[1]._sharers(LOOP), Share(4, 4, {"loss": 1.0})) == {"loss": 0.25}
        assert waits.result() == {"loss": 0.25}


def test_ranks_that_evaluate_before_their_first_step_wait_for_nobody(ranks, enter):
    rounds = enter(ranks, steps=[0, 0])
    for rank, (each, round_) in enumerate(zip(ranks, rounds)):
        place = Place(0, False, 0)
        assert each._sharers(place) == [rank]
        assert each._exchange(round_, place, [rank], Share(2, 2, {"loss": rank})) == {"loss": rank / 2}


def test_a_rank_that_does_not_come_is_named(ranks, enter, monkeypatch):
    monkeypatch.setattr(evaluation, "_PATIENCE_SECONDS", 0.01)
    has_named = threading.Event()
    said = []
    monkeypatch.setattr(evaluation.log, "warning", lambda text, *words: (said.append(text % words), has_named.set()))
    rounds = enter(ranks, steps=[3, 3])
    with concurrent.futures.ThreadPoolExecutor() as threads:
        waits = threads.submit(ranks[1]._exchange, rounds[1], LOOP, [0, 1], Share(2, 1, {"loss": 1.0}))
        assert has_named.wait(60)
        ranks[0]._exchange(rounds[0], LOOP, [0, 1], Share(2, 1, {"loss": 1.0}))
        waits.result()
    assert said[0] == "rank 1 has waited for 0.01 s in evaluate, after step 4, for rank 0: all ranks must call it after the same steps"


def evaluate(measure, model=None, data=None, **join):
    model = model or torch.nn.Linear(2, 1)
    job = lockstep.join(model, torch.optim.SGD(model.parameters(), lr=0.1), **join)
    return job, lambda: job.evaluate(data or torch.utils.data.TensorDataset(torch.arange(10.)), 4, measure)


def test_means_count_each_sample_once():
    _, run = evaluate(lambda batch: {"mean": batch.data[0].mean(), "last": len(batch.ids) == 2})
    assert run() == pytest.approx({"mean": 4.5, "last": 0.2})


def test_it_continues_where_it_left_a_round_with_the_same_shares(monkeypatch):
    found = []
    job, run = evaluate(lambda batch: found.append(batch.ids) or {"mean": batch.data[0].mean()})
    leaves = iter([False, False, True, False])  # before the third batch
    monkeypatch.setattr(job, "must_leave", lambda: next(leaves))
    assert run() == pytest.approx({"mean": 4.5})
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    monkeypatch.undo()
    run()  # another one
    assert len(found) == 6


def test_the_model_trains_on_afterwards():
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout())
    model[1].eval()
    model.append(torch.nn.Linear(1, 1))

    def measure(batch):
        assert not torch.is_grad_enabled()
        return {"training": any(module.training for module in model.modules())}

    _, run = evaluate(measure, model)
    assert run() == {"training": 0}
    assert [module.training for module in model] == [True, False, True]
    assert torch.is_grad_enabled()


def test_data_parallel_sends_no_buffers_which_other_ranks_would_miss(monkeypatch):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    module, sent = torch.nn.BatchNorm1d(2), []
    model = torch.nn.parallel.DistributedDataParallel(module)
    monkeypatch.setattr(model, "_sync_buffers", lambda: sent.append(torch.is_grad_enabled()))
    model(torch.rand(4, 2)).sum().backward()
    with _evaluating(module, model):
        model(torch.rand(4, 2))
    model(torch.rand(4, 2)).sum().backward()
    assert sent == [True, True]
    dist.destroy_process_group()


@pytest.mark.parametrize("returned, message", [(0.5, "means over its batch by name"), ({}, "means over its batch by name"),
                                               ({"loss": torch.zeros(2)}, "one number for each name, but 'loss' is tensor"), ({"loss": None}, "'loss' is None")])
def test_what_is_no_mean_is_rejected(returned, message):
    _, run = evaluate(lambda batch: returned)
    with pytest.raises(lockstep.LockstepError, match=message):
        run()


def test_ranks_that_evaluate_different_things_are_rejected(ranks):
    with pytest.raises(lockstep.LockstepError, match="the same on all ranks, but has 4 or 5 samples"):
        _mean([Share(4, 2, {"loss": 1.0}), Share(5, 2, {"loss": 1.0})])
    with pytest.raises(lockstep.LockstepError, match="must have the same names on all ranks"):
        _mean([Share(4, 2, {"loss": 1.0}), Share(4, 2, {"error": 1.0})])
    assert _mean([Share(4, 4, {"loss": 1.0}), Share(4, 0, {})]) == {"loss": 0.25}


def test_it_needs_its_place_in_the_script_and_a_common_model():
    job, run = evaluate(lambda batch: {"loss": 0})
    with job.step():
        pass
    with pytest.raises(lockstep.LockstepError, match="evaluate needs steps that come from job.batches"):
        run()
    data = torch.utils.data.TensorDataset(torch.rand(10, 2))
    job, run = evaluate(lambda batch: {"loss": 0}, average_every=2)
    for _ in job.batches(data, 4, steps=1):
        with job.step():
            pass
        break
    job._averaging.open_steps = 1
    with pytest.raises(lockstep.LockstepError, match="1 steps were taken since the last average"):
        run()


def test_a_script_comes_to_an_evaluation_again_when_its_step_was_not_finished(monkeypatch):
    calls = []
    model = torch.nn.Linear(2, 1)
    job = lockstep.join(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = torch.utils.data.TensorDataset(torch.rand(8, 2))

    def measure(batch):
        calls.append(job.finished_steps)
        return {"loss": 0}

    def survive(error):
        job._averaging.step = None
        return True

    monkeypatch.setattr(job, "survives", survive)
    loop = iter(job.batches(data, 4, steps=2))
    for _ in range(2):
        next(loop)  # twice the same step
        with job.step():
            raise RuntimeError("a rank is lost")
        job.evaluate(data, 8, measure)
    job.evaluate(data, 8, measure)  # another one, at the same place
    assert calls == [0, 0]


def test_between_a_batch_and_its_step_it_is_rejected():
    """The batch would be of another round than the step."""
    job, run = evaluate(lambda batch: {"loss": 0})
    loop = iter(job.batches(torch.utils.data.TensorDataset(torch.rand(8, 2)), 4, steps=2))
    next(loop)
    with pytest.raises(lockstep.LockstepError, match="evaluate after a step, or outside of the loop"):
        run()
    with job.step(), pytest.raises(lockstep.LockstepError, match="evaluate after a step, or outside of the loop"):
        run()
