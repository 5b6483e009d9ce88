"""Windows of several steps (`average_every`), with ranks that are threads of one process; run.py starts it."""
import concurrent.futures
import copy
import threading

import pytest
import torch

import lockstep
from lockstep.mean import Part, pieces, take, weighted
from lockstep.windows import take_outer_step

CPU = torch.device("cpu")
SAMPLES, BATCH, EVERY, EPOCHS = 61, 12, 4, 2  # six steps in an epoch; in the last one there is one sample, so two ranks have none
SHARES = [5, 4, 3]


class Together:
    """What the rounds of the ranks have in common."""

    def __init__(self, world):
        self.barrier = threading.Barrier(world, timeout=30)
        self.given = [None] * world


class ThreadRound:
    """A Round among threads. The sum number `fails_at` is that in which a rank is lost."""

    device = CPU

    def __init__(self, together, rank, fails_at=None):
        self.together, self.rank, self.world = together, rank, len(together.given)
        self.failure, self.sums, self.fails_at = None, 0, fails_at

    def all_reduce(self, tensor):
        self.sums += 1
        future = torch.futures.Future()
        if self.sums == self.fails_at:
            future.set_exception(RuntimeError("a rank has left the round"))
            return future
        self.together.given[self.rank] = tensor.clone()
        self.together.barrier.wait()
        tensor.copy_(sum(self.together.given[1:], self.together.given[0]))
        self.together.barrier.wait()
        future.set_result(tensor)
        return future

    def abort(self, reason):
        self.failure = reason


class Data(torch.utils.data.Dataset):
    def __init__(self):
        dice = torch.Generator().manual_seed(1)
        self.inputs, self.targets = torch.rand(SAMPLES, 4, generator=dice).double(), torch.rand(SAMPLES, 2, generator=dice).double()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


class Network(torch.nn.Module):
    """With a parameter that is not trained, one that is a single number, a running statistic, and a counter."""

    def __init__(self):
        super().__init__()
        dice = torch.Generator().manual_seed(2)
        self.weight = torch.nn.Parameter(torch.rand(4, 2, generator=dice).double())
        self.scale = torch.nn.Parameter(torch.tensor(1.5).double())
        self.fixed = torch.nn.Parameter(torch.tensor([1 / 3]).double(), requires_grad=False)
        self.register_buffer("mean", torch.zeros(4).double())
        self.register_buffer("passes", torch.tensor(0))

    def forward(self, inputs):
        self.mean.mul_(0.9).add_(inputs.mean(0), alpha=0.1)
        self.passes += 1
        return inputs @ self.weight * self.scale + self.fixed


def optimizers(network, outer):
    adam = torch.optim.Adam(network.parameters(), lr=0.05)
    outer_optimizer = torch.optim.SGD([network.weight, network.scale], lr=0.7, momentum=0.9, nesterov=True) if outer else None
    return adam, torch.optim.lr_scheduler.StepLR(adam, 5, gamma=0.5), outer_optimizer


def in_threads(world, action):
    with concurrent.futures.ThreadPoolExecutor(world) as pool:
        return [each.result() for each in [pool.submit(action, rank) for rank in range(world)]]


def train(rank, together, outer, fails_at=None):
    network = Network()
    adam, scheduler, outer_optimizer = optimizers(network, outer)
    job = lockstep.join(network, adam, scheduler, average_every=EVERY, outer_optimizer=outer_optimizer)
    job.rank, job.world = rank, len(together.given)
    job._averaging.enter_round(ThreadRound(together, rank, fails_at))
    final = []
    for batch in job.batches(Data(), BATCH, epochs=EPOCHS, seed=3):
        with job.step() as step:
            adam.zero_grad()
            loss = torch.nn.functional.mse_loss(job.model(batch.inputs), batch.targets)
            step.report(loss)
            loss.backward()
            adam.step()
            scheduler.step()
        if job._averaging.open_steps == 0:
            final.append((job.finished_steps, job.progress.loss))
        if job._averaging._round.failure:
            break
    return job, network, adam, final


def reference(outer):
    """The same in a simple way. Returns the state, the moments of Adam for `weight`, and the loss of each window."""
    plan, data, world = lockstep.SamplePlan(SAMPLES, BATCH, seed=3), Data(), 3
    networks = [Network() for _ in range(world)]
    adams, schedulers, _ = zip(*(optimizers(network, False) for network in networks))
    momentum = {"weight": 0.0, "scale": 0.0}
    losses, begin = [], 0
    for end in (4, 6, 8, 12):
        before = copy.deepcopy(networks[0].state_dict())
        samples, loss_sum = [0] * world, 0.0
        for step in range(begin, end):
            for rank in range(world):
                ids = plan.ids(step, rank, world)
                if ids:
                    adams[rank].zero_grad()
                    loss = torch.nn.functional.mse_loss(networks[rank](data.inputs[ids]), data.targets[ids])
                    loss.backward()
                    adams[rank].step()
                    samples[rank] += len(ids)
                    loss_sum += loss.item() * len(ids)
                schedulers[rank].step()
        losses.append((end, loss_sum / sum(samples)))

        def mean(tensors):
            return sum(n / sum(samples) * tensor for n, tensor in zip(samples, tensors))
        after = {name: mean([network.state_dict()[name] for network in networks]) for name in ("weight", "scale", "mean")}
        for name in momentum if outer else ():
            gradient = before[name] - after[name]
            momentum[name] = 0.9 * momentum[name] + gradient
            after[name] = before[name] - 0.7 * (gradient + 0.9 * momentum[name])
        after.update(fixed=before["fixed"], passes=networks[0].passes.clone())
        moments = [{key: mean([adam.state[network.get_parameter(name)][key] for network, adam in zip(networks, adams)]) for key in ("exp_avg", "exp_avg_sq")}
                   for name in ("weight", "scale")]
        steps = adams[0].state[networks[0].weight]["step"].clone()
        for network, adam in zip(networks, adams):
            network.load_state_dict(after)
            for name, moment in zip(("weight", "scale"), moments):
                adam.state[network.get_parameter(name)].update({**copy.deepcopy(moment), "step": steps.clone()})
        begin = end
    return networks[0].state_dict(), adams[0].state[networks[0].weight], losses


@pytest.mark.parametrize("outer", [False, True])
def test_windows_agree_with_a_simple_reference(outer):
    together = Together(3)
    ranks = in_threads(3, lambda rank: train(rank, together, outer))
    state, moments, losses = reference(outer)
    for job, network, adam, final in ranks:
        assert job.finished_steps == 12
        # In each window 31 numbers of 8 bytes (parameters, moments, the statistic), 2 of 4 (steps of Adam), and the counter: not what is not trained.
        assert job.progress.communicated == 4 * (31 * 8 + 2 * 4 + 8)
        for name, value in network.state_dict().items():
            assert torch.allclose(value, state[name], rtol=1e-9, atol=1e-12), name
            assert torch.equal(value, ranks[0][1].state_dict()[name]), f"{name} is not equal on all ranks"
        for key, value in adam.state[network.weight].items():
            assert torch.allclose(value, moments[key], rtol=1e-9, atol=1e-12), key
        assert [step for step, _ in final] == [step for step, _ in losses]
        assert [loss for _, loss in final] == pytest.approx([loss for _, loss in losses])


def test_the_mean_of_each_type_of_tensor():
    dice = torch.Generator().manual_seed(4)

    def of_rank(rank):
        return [Part(torch.rand(30, generator=dice).half()), Part(torch.rand(5, 7, generator=dice), torch.ones(5, 7)),
                Part(torch.rand(3, generator=dice).double()), Part(torch.tensor([2**60 + rank, rank])), Part(torch.tensor(rank > 0)),
                Part(torch.tensor(float(rank)), counts=True), Part(torch.tensor(float(rank)))]
    parts = [of_rank(rank) for rank in range(3)]
    weights = [n / sum(SHARES) for n in SHARES]
    wanted = [sum(weight * part.tensor.double() for weight, part in zip(weights, column)) for column in zip(*parts)]
    split = [list(pieces(of_one)) for of_one in parts]
    assert [[each.tensor.dtype for each in piece] for piece in split[0]] == [[torch.float16] + 3 * [torch.float32], [torch.float64], [torch.int64, torch.bool]]
    for pieces_of_ranks in zip(*split):
        summed = sum(weighted(piece, weights[rank], is_first=rank == 0, device=CPU) for rank, piece in enumerate(pieces_of_ranks))
        for piece in pieces_of_ranks:
            take(piece, summed)
    for of_one in parts:
        found = [part.tensor for part in of_one]
        assert torch.equal(found[3], torch.tensor([2**60, 0])) and found[4].item() is False and found[5] == 0
        for index, tolerance in ((0, 1e-3), (1, 1e-6), (2, 1e-12), (6, 1e-6)):
            assert torch.allclose(found[index].double(), wanted[index], rtol=tolerance), index


def test_a_large_state_is_sent_in_pieces(monkeypatch):
    monkeypatch.setattr("lockstep.mean._PIECE_ELEMENTS", 10)
    parts = [Part(torch.zeros(size)) for size in (4, 4, 4, 30, 1)]
    assert [[each.tensor.numel() for each in piece] for piece in pieces(parts)] == [[4, 4, 4], [30], [1]]


def test_the_outer_step_gives_the_numbers_of_the_cpp_runtime():
    """tests/unit/runtime/train/local_sgd/outer_step_test.cc, IsNesterovsWithTheChangeForAGradient."""
    parameter = torch.nn.Parameter(torch.tensor([0.0, 4.0]))
    outer = torch.optim.SGD([parameter], lr=0.5, momentum=0.8, nesterov=True)
    outer.state[parameter]["momentum_buffer"] = torch.tensor([10.0, 0.0])
    take_outer_step(outer, {parameter: torch.tensor([1.0, 2.0])})
    assert torch.allclose(outer.state[parameter]["momentum_buffer"], torch.tensor([9.0, -2.0]))
    assert torch.allclose(parameter, torch.tensor([-3.1, 3.8])) and parameter.grad is None


@pytest.mark.parametrize("fails_at", range(7, 13))  # a sum of the second window, from what the ranks say to the last of the means
def test_a_window_whose_average_fails_is_taken_back(fails_at):
    together, kept = Together(1), Together(1)
    job, network, adam, final = train(0, together, outer=True, fails_at=fails_at)
    begun, other, its_adam, _ = train(0, kept, outer=True, fails_at=7)
    assert job._averaging._round.failure == "a rank has left the round"
    assert (job.finished_steps, job.progress.repeated, [step for step, _ in final]) == (4, 2, [4, 4])
    assert str(network.state_dict()) == str(other.state_dict()) and str(adam.state_dict()) == str(its_adam.state_dict())
    first, = {int(state["step"]) for state in adam.state.values()}
    assert first == 4


def test_the_optimizer_of_one_rank_counts_where_others_have_no_state():
    """As if a parameter had got a gradient on one rank only."""
    together = Together(2)

    def act(rank):
        network = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)])
        for part in network:
            torch.nn.init.ones_(part.weight)
        adam = torch.optim.Adam(network.parameters(), lr=0.1)
        job = lockstep.join(network, adam, average_every=1)
        job._averaging.enter_round(ThreadRound(together, rank))
        with job.step():
            network[rank](torch.ones(1, 1)).sum().backward()
            adam.step()
        return [part.weight.item() for part in network], adam.state_dict()
    (weights, first), (others, second) = in_threads(2, act)
    assert weights == others == pytest.approx([0.95, 0.95])
    assert str(first) == str(second) and list(first["state"]) == [0]


def test_alone_the_outer_step_is_taken_and_a_save_waits_for_it(tmp_path):
    network = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    outer = torch.optim.SGD(network.parameters(), lr=0.5)
    job = lockstep.join(network, sgd, checkpoints=tmp_path, average_every=3, outer_optimizer=outer)
    assert job.model is network
    before = network.weight.detach().clone()
    data = torch.utils.data.TensorDataset(torch.ones(12, 2))
    saved = []
    for batch in job.batches(data, 4, epochs=1):
        with job.step() as step:
            sgd.zero_grad()
            network(batch.data[0]).sum().backward()  # a gradient of 4
            sgd.step()
        assert step.is_committed
        if job.finished_steps == 2:
            job.save()
        saved.append(job._saved_step)
    assert torch.allclose(network.weight, before - 0.5 * 3 * 0.4) and saved == [0, 0, 3]


def test_mistakes_are_named():
    network = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    outer = torch.optim.SGD(network.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    for message, arguments in (
            ("average_every must be at least 1 step, not 0", {"average_every": 0}),
            ("outer_optimizer takes a step at each average, so join needs average_every, too", {"outer_optimizer": outer}),
            ("either average_every or `ddp`", {"average_every": 5, "ddp": {"find_unused_parameters": True}}),
            ("must be a torch.optim.Optimizer, not dict", {"average_every": 5, "outer_optimizer": {"lr": 0.7}}),
            ("nor pass it to join a second time", {"average_every": 5, "outer_optimizer": sgd}),
            ("a parameter that is not one of the model", {"average_every": 5, "outer_optimizer": torch.optim.SGD(torch.nn.Linear(2, 1).parameters())})):
        with pytest.raises(lockstep.LockstepError, match=message):
            lockstep.join(network, sgd, **arguments)
    with pytest.raises(lockstep.LockstepError, match="does not support complex numbers"):
        lockstep.join(torch.nn.Linear(2, 1, dtype=torch.complex64), average_every=5)
