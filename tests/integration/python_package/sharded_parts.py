"""What the package has for FSDP2, part by part; sharded.py starts it in an interpreter that has PyTorch."""
import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import types
import uuid

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import lockstep
from lockstep import pod
from lockstep.batches import Batch
from lockstep.errors import RoundBroken
from lockstep.pod import Pod
from lockstep.rounds import Round
from lockstep.state import State

CPU = torch.device("cpu")


@pytest.fixture
def mesh():
    return lockstep.shard_mesh()


def sharded(mesh, hidden=8, **options):
    model = torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.Linear(hidden, 2))
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def test_mistakes_are_named(mesh, monkeypatch):
    assert lockstep.shard_mesh() is mesh
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    with pytest.raises(lockstep.LockstepError, match="the model as a whole is not sharded: after its layers, call fully_shard"):
        lockstep.join(model)
    fully_shard(model[0], mesh=mesh)
    with pytest.raises(lockstep.LockstepError, match="the model as a whole is not sharded"):
        lockstep.join(model)
    with pytest.raises(lockstep.LockstepError, match=r"0.weight is sharded over DeviceMesh.*, not over the ranks of this pod"):
        lockstep.join(sharded(init_device_mesh("cpu", (1,))))
    ignored = torch.nn.Linear(4, 2)
    fully_shard(ignored, mesh=mesh, ignored_params={ignored.bias})
    with pytest.raises(lockstep.LockstepError, match="bias is not sharded"):
        lockstep.join(ignored)
    model = sharded(mesh)
    with pytest.raises(lockstep.LockstepError, match="average_every needs the whole state in each rank"):
        lockstep.join(model, torch.optim.SGD(model.parameters(), lr=0.1), average_every=5)
    with pytest.raises(lockstep.LockstepError, match="ddp are arguments of DistributedDataParallel"):
        lockstep.join(model, ddp={"find_unused_parameters": True})
    monkeypatch.setattr(pod, "_pod", Pod())
    with pytest.raises(lockstep.LockstepError, match="the model is sharded over a mesh of its own"):
        lockstep.join(model)
    with pytest.raises(lockstep.LockstepError, match=r"call shard_mesh\(\) instead of init_process_group\(\)"):
        lockstep.shard_mesh()


def test_pods_of_different_sizes_are_rejected(mesh):
    place = {"round": 3, "rank": 2, "world": 3, "storeHost": "127.0.0.1", "storePort": 1}
    with pytest.raises(lockstep.LockstepError, match="the pods of this job have different numbers of ranks: this one has 2, and its rank 0 is rank 2 of 3"):
        Round(place, CPU, Pod(0, 2, mesh))
    third = Round({**place, "rank": 5, "world": 6}, CPU, Pod(1, 2, mesh))
    assert (third.group_rank, third.group_size) == (2, 3)


def test_state_travels(mesh):
    def trained(model, learning_rate):
        optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        model(torch.rand(5, 4)).sum().backward()
        optimizer.step()
        return optimizer
    sent, received = sharded(mesh), sharded(mesh)
    ours, theirs = trained(sent, 0.1), torch.optim.Adam(received.parameters(), lr=0.5)
    wire = queue.SimpleQueue()
    State([sent, ours], CPU, mesh=mesh).send(lambda tensor: wire.put(tensor.clone()))
    State([received, theirs], CPU, mesh=mesh).receive(lambda tensor: tensor.copy_(wire.get()))
    assert wire.empty()
    for name, value in sent.state_dict().items():
        assert torch.equal(value.full_tensor(), received.state_dict()[name].full_tensor()), name
    for mine, its in zip(ours.state.values(), theirs.state.values()):
        assert torch.equal(mine["exp_avg"].full_tensor(), its["exp_avg"].full_tensor()) and its["exp_avg"].device_mesh == mesh
    received(torch.rand(5, 4)).sum().backward()
    theirs.step()


def gradient(mesh, weight, **options):
    torch.manual_seed(1)
    model = sharded(mesh, **options)
    job = lockstep.join(model)
    ids = [0, 1] if weight > 0 else []
    with job.step() as step:
        step.batch = Batch(None, ids, weight, 8, 0, 0)
        model(torch.full((2, 4), float("nan") if weight == 0 else 1.0)).float().sum().backward()
        return model[0].weight.grad.full_tensor().clone()


def test_gradients_are_weighted(mesh):
    whole = gradient(mesh, 1.0)
    assert torch.allclose(gradient(mesh, 0.25), whole / 4)
    assert torch.equal(gradient(mesh, 0), torch.zeros_like(whole)), "the sample that counts nothing has given a NaN"
    half = gradient(mesh, 0.25, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    assert half.dtype == torch.float32 and torch.allclose(half, whole / 4, atol=0.01)


class HalfARound:
    """Whose sums arrive on this rank."""

    failure, device = None, CPU

    def all_reduce(self, tensor):
        done = torch.futures.Future()
        done.set_result(2 * tensor)  # as of two pods
        return done

    def abort(self, reason):
        self.failure = reason


@pytest.mark.parametrize("has_failed", [False, True])
def test_all_ranks_of_a_pod_repeat_the_step_that_has_failed_for_one(mesh, monkeypatch, has_failed):
    model = sharded(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = lockstep.join(model, optimizer)
    round_, job.world = HalfARound(), 4
    job._averaging.enter_round(round_)
    monkeypatch.setattr(job._averaging, "_pod", types.SimpleNamespace(size=2, gather=lambda *mine: [mine, (float(has_failed), *mine[1:])]))
    before = model[0].weight.full_tensor().clone()
    expected = pytest.raises(RoundBroken, match="another rank of this pod has lost the round") if has_failed else contextlib.nullcontext()
    with expected, job.step() as step:
        assert has_failed or step.total(3) == 12
        model(torch.rand(5, 4)).sum().backward()
        optimizer.step()
    assert torch.equal(before, model[0].weight.full_tensor()) == has_failed
    assert (round_.failure is not None) == has_failed and job.finished_steps == (0 if has_failed else 1)


def test_learning_rates_that_differ_are_named(mesh):
    model = sharded(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = lockstep.join(model, optimizer)
    job.world = 4  # of which the sum is 0.2
    job._averaging.enter_round(HalfARound())
    with pytest.raises(lockstep.LockstepError, match="it is 0.1 on this one and 0.05 in their mean"), job.step():
        model(torch.rand(5, 4)).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("samples", [1, 2, 5, 7])
@pytest.mark.parametrize("at_least", [1, 2, 4])
def test_micro_batches_are_as_many_as_those_of_the_other_ranks(samples, at_least):
    batch = Batch(torch.arange(samples), list(range(samples)), 0.5, 14, 0, 0)
    parts = batch.micro_batches(4, at_least=at_least)
    assert len(parts) == max(at_least, -(-samples // 4))
    assert all(1 <= len(part.ids) <= 4 and part.data.tolist() == part.ids for part in parts)
    mean = sum(part.part * part.data.float().mean() for part in parts)
    assert torch.isclose(mean, batch.data.float().mean()) and abs(sum(part.part for part in parts) - 1) < 1e-9


def test_a_rank_that_ends_before_all_have_come_comes_again(monkeypatch):
    monkeypatch.setenv("LOCKSTEP_POD_UID", str(uuid.uuid4()))
    name = "\0lockstep-pod-" + os.environ["LOCKSTEP_POD_UID"]
    found = queue.SimpleQueue()
    host = threading.Thread(target=lambda: found.put(pod._wait_for_others(name, 3)))
    host.start()
    ports = queue.SimpleQueue()

    def come(rank):
        link, port = pod._find(name, rank)
        ports.put(port)
        link.close()
    first = socket.socket(socket.AF_UNIX)
    until_connected(first, name)
    first.sendall(b"1\n")
    first.close()  # it has ended
    ranks = [threading.Thread(target=come, args=(rank,)) for rank in (2, 1)]
    for each in ranks:
        each.start()
    links = found.get(timeout=30)
    for link in links:
        link.sendall(b"5\n")
    for each in (host, *ranks):
        each.join()
    assert len(links) == 2 and [ports.get(), ports.get()] == [5, 5]


def until_connected(link, name):
    while True:
        try:
            return link.connect(name)
        except ConnectionRefusedError:
            pass


RANK = """
import sys, lockstep
print(lockstep.shard_mesh("cpu").size(), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def two_ranks():
    def start(rank):
        environment = {"LOCKSTEP_RANK_SOCKET": "none", "LOCKSTEP_POD_UID": uid, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        return subprocess.Popen([sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **environment})
    uid = str(uuid.uuid4())
    with start(0) as first, start(1) as second:
        try:
            assert [rank.stdout.readline() for rank in (first, second)] == ["2\n", "2\n"]
            yield first, second
        finally:
            first.kill()
            second.kill()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_ends_with_another_one_of_its_pod(killed):
    with two_ranks() as ranks:
        ranks[killed].send_signal(signal.SIGKILL)
        assert ranks[1 - killed].wait(30) == 1
        assert "another rank of this pod has ended" in ranks[1 - killed].stderr.read()


def test_a_rank_that_has_finished_leaves_the_others_alone():
    with two_ranks() as ranks:
        for rank in ranks:
            rank.stdin.close()
            assert rank.wait(30) == 0
