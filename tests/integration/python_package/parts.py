"""The package's parts, in one process; run.py starts it in an interpreter that has PyTorch."""
import concurrent.futures
import copy
import queue
import threading

import pytest
import torch

import lockstep
from lockstep import progress
from lockstep.averaging import Final
from lockstep.state import State


def model(hidden=8):
    return torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.Linear(hidden, 2))


def trained(network):
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.rand(5, 4)).sum().backward()
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("world", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("drop_last", [False, True])
def test_each_sample_once_in_an_epoch(world, drop_last):
    plan = lockstep.SamplePlan(101, 32, seed=5, drop_last=drop_last)
    for epoch in range(3):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        used = [i for step in steps for rank in range(world) for i in plan.ids(step, rank, world)]
        assert len(set(used)) == len(used) == (96 if drop_last else 101)


def test_a_share_is_part_of_the_global_batch_of_any_world():
    plan = lockstep.SamplePlan(101, 32, seed=5)
    for step in range(8):
        assert plan.ids(step) == [i for rank in range(5) for i in plan.ids(step, rank, 5)]
        assert len(plan.ids(step)) == plan.size(step)


def test_state_travels():
    sent, received = model(), model()
    ours, theirs = trained(sent), torch.optim.Adam(received.parameters(), lr=0.5)
    kept = next(received.parameters())
    wire = queue.SimpleQueue()
    cpu = torch.device("cpu")
    State([sent, ours], cpu).send(lambda tensor: wire.put(tensor.clone()))
    State([received, theirs], cpu).receive(lambda tensor: tensor.copy_(wire.get()))
    assert wire.empty()
    for name, value in sent.state_dict().items():
        assert torch.equal(value, received.state_dict()[name]), name
    assert next(received.parameters()) is kept, "the parameters of the model are other objects now"
    for mine, its in zip(ours.state.values(), theirs.state.values()):
        assert torch.equal(mine["exp_avg"], its["exp_avg"]) and torch.equal(mine["step"], its["step"])
    assert theirs.param_groups[0]["lr"] == 0.1


class OfTwo:
    """A round of two ranks, each on a thread of this process."""

    def __init__(self, rank, rows, both, wire):
        self.group_rank = rank
        self._rows, self._both, self._wire = rows, both, wire

    def gather(self, row):
        self._rows[self.group_rank] = row
        self._both.wait(60)
        return list(self._rows)

    def send(self, tensor, to):
        self._wire.put(tensor.clone())

    def receive(self, tensor, source):
        tensor.copy_(self._wire.get(timeout=60))


@pytest.mark.parametrize("versions, newest", [([(3, 5), (3, 6)], 1), ([(4, 5), (3, 6)], 0), ([(3, -1), (3, 6)], 1), ([(-1, 7), (3, 6)], 1)])
def test_of_states_after_one_step_that_of_the_later_round_counts(versions, newest):
    models = [model(), model()]
    states = [State([each], torch.device("cpu"), step) for each, (step, _) in zip(models, versions)]
    for state, (_, made_in) in zip(states, versions):
        state.made_in = made_in
    rows, both, wire = [None, None], threading.Barrier(2), queue.SimpleQueue()
    with concurrent.futures.ThreadPoolExecutor() as threads:
        done = [threads.submit(state.synchronise, OfTwo(rank, rows, both, wire), None, lambda rank=rank: [10 + rank])
                for rank, state in enumerate(states)]
        found = [each.result() for each in done]
    said = [[versions[newest][0] if rank == newest else -1, 10 + rank] for rank in range(2)]
    assert found == [("kept" if rank == newest else "peer", said) for rank in range(2)]
    assert [(each.step, each.made_in) for each in states] == 2 * [versions[newest]]
    assert all(torch.equal(*pair) for pair in zip(*(each.state_dict().values() for each in models)))


def test_a_step_says_in_which_round_it_was_made():
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    job = lockstep.join(network, optimizer)
    assert job._state.made_in != job.round
    with job.step():
        job.model(torch.rand(5, 4)).sum().backward()
        optimizer.step()
    assert job._state.made_in == job.round


def test_another_model_is_rejected_with_the_name_of_the_parameter():
    wire = queue.SimpleQueue()
    cpu = torch.device("cpu")
    State([model(8)], cpu).send(lambda tensor: wire.put(tensor.clone()))
    with pytest.raises(lockstep.LockstepError, match=r"Sequential: 0.weight is \(9, 4\), torch.float32 here and \(8, 4\)"):
        State([model(9)], cpu).receive(lambda tensor: tensor.copy_(wire.get()))


def test_mistakes_are_named():
    network = model()
    with pytest.raises(lockstep.LockstepError, match="must be the model, a torch.nn.Module, not Adam"):
        lockstep.join(torch.optim.Adam(network.parameters()))
    with pytest.raises(lockstep.LockstepError, match="int has no state_dict"):
        lockstep.join(network, 3)
    job = lockstep.join(network)
    data = torch.utils.data.TensorDataset(torch.rand(10, 4))
    with pytest.raises(lockstep.LockstepError, match="either epochs or steps"):
        job.batches(data, 4)
    with pytest.raises(lockstep.LockstepError, match="global_batch_size must be at least 1, not 0"):
        job.batches(data, 0, epochs=1)
    with pytest.raises(lockstep.LockstepError, match="the data set is empty"):
        job.batches(torch.utils.data.TensorDataset(torch.rand(0, 4)), 4, epochs=1)

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(lockstep.LockstepError, match="IterableDataset"):
        job.batches(Stream(), 4, epochs=1)
    batch = next(iter(job.batches(data, 4, epochs=1)))
    with pytest.raises(lockstep.LockstepError, match="not a pair of input and target but list: use `batch.data`"):
        batch.inputs


def test_what_was_not_passed_to_join_is_named():
    network, other = model(), model()
    optimizer = torch.optim.Adam(network.parameters())
    with pytest.raises(lockstep.LockstepError, match=r"Adam updates a parameter of shape \(8, 4\) that is not in the model passed to join"):
        lockstep.join(other, optimizer)
    job = lockstep.join(network, torch.optim.lr_scheduler.StepLR(optimizer, 10))  # which refers to the optimizer, and does not have its state
    with pytest.raises(lockstep.LockstepError, match="Adam was not passed to join"), job.step():
        network(torch.rand(2, 4)).sum().backward()
        optimizer.step()
    optimizer.step()  # outside of a step it concerns this rank alone


def test_an_optimizer_within_another_object_was_passed_with_it():
    class Wrapper:
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def state_dict(self):
            return self.optimizer.state_dict()

        def load_state_dict(self, state):
            self.optimizer.load_state_dict(state)

    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    job = lockstep.join(network, Wrapper(optimizer))
    for _ in range(2):
        with job.step():
            network(torch.rand(2, 4)).sum().backward()
            optimizer.step()
    assert job.finished_steps == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_alone_it_trains_as_one_process(workers):
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    job = lockstep.join(network, optimizer)
    assert job.model is network and (job.rank, job.world) == (0, 1)
    data = torch.utils.data.TensorDataset(torch.rand(10, 4), torch.rand(10, 2))
    seen = []
    for batch in job.batches(data, 4, epochs=2, num_workers=workers):
        with job.step() as step:
            assert torch.equal(batch.inputs, data.tensors[0][batch.ids])
            torch.nn.functional.mse_loss(job.model(batch.inputs), batch.targets).backward()
            optimizer.step()
        assert step.is_committed
        seen += batch.ids
    assert job.finished_steps == 6 and sorted(seen) == sorted(2 * list(range(10)))


def test_a_loader_of_another_class_reads_the_samples():
    made = []

    class Loader(torch.utils.data.DataLoader):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            made.append(self)
    network = model()
    job = lockstep.join(network)
    data = torch.utils.data.TensorDataset(torch.rand(10, 4))
    for batch in job.batches(data, 4, epochs=1, make_loader=Loader, collate_fn=lambda samples: torch.stack([sample for sample, in samples])):
        with job.step():
            job.model(batch.data).sum().backward()
    assert job.finished_steps == 3 and [each.dataset for each in made] == [data]


def test_an_error_of_the_script_is_not_swallowed():
    job = lockstep.join(model())
    with pytest.raises(ZeroDivisionError), job.step():
        1 / 0
    assert job.finished_steps == 0


@pytest.mark.parametrize("updates", [False, True])
def test_a_step_counts_if_it_fails_after_its_update(updates, monkeypatch):
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    job = lockstep.join(network, optimizer)
    monkeypatch.setattr(job, "survives", lambda error: True)  # as if a rank had left the round
    with job.step() as step:
        network(torch.rand(5, 4)).sum().backward()
        if updates:
            optimizer.step()
        raise RuntimeError("a collective of the script has failed")
    assert (job.finished_steps, step.is_committed) == ((1, True) if updates else (0, False))


def test_a_step_of_two_optimizers_is_taken_back_if_it_fails_between_their_updates(monkeypatch):
    network = model()
    first, second = torch.optim.Adam(network[0].parameters(), lr=0.1), torch.optim.Adam(network[2].parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(first, 1)
    job = lockstep.join(network, first, second, scheduler)

    def train(fails):
        with job.step():
            network(torch.ones(5, 4)).sum().backward()
            first.step()
            scheduler.step()
            if fails:
                raise RuntimeError("a collective has failed")
            second.step()
    train(fails=False)
    before = [copy.deepcopy(each.state_dict()) for each in (network[0], network[2], first, scheduler)]
    monkeypatch.setattr(job, "survives", lambda error: True)  # as if a rank had left the round
    train(fails=True)
    after = [each.state_dict() for each in (network[0], network[2], first, scheduler)]
    assert job.finished_steps == 1 and str(before) == str(after)
    train(fails=False)
    assert job.finished_steps == 2 and str(before) != str([each.state_dict() for each in (network[0], network[2], first, scheduler)])


def test_micro_batches_weigh_what_they_hold():
    network = model()
    job = lockstep.join(network)
    data = torch.utils.data.TensorDataset(torch.rand(10, 4), torch.rand(10, 2))
    batch = next(iter(job.batches(data, 10, epochs=1)))
    with job.step() as step:
        parts = list(step.accumulate(batch, 4))
    assert [len(part.ids) for part in parts] == [4, 4, 2] and sum(part.part for part in parts) == 1
    assert torch.equal(torch.cat([part.inputs for part in parts]), batch.inputs)


def test_what_the_script_does_between_two_steps_is_a_phase(monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    report = progress.Progress()
    report.enter_round(1, 0)
    for _ in range(2):
        now += 2
        report.spent(data=0.5, evaluate=1)
        report.step_begins()
        now += 1
        report.step_ended({"forward": 0.25, "backward": 0.75})
    assert report.message()["phaseSeconds"] == {"data": 1, "evaluate": 2, "script": 0.5, "forward": 0.5, "backward": 1.5}
    report.enter_round(2, 2)
    now += 60  # until the others are here
    report.step_begins()
    assert report.message()["phaseSeconds"]["script"] == 0.5


def test_the_samples_of_all_ranks_are_reported():
    report = progress.Progress()
    report.finished(1, Final(1, 3, 8, 0.0), 0.1)
    report.finished(3, Final(2, 5, 16, 0.0), 0.1)
    assert (report.message()["samplesTotal"], report.message()["globalSamplesTotal"]) == (8, 24)
