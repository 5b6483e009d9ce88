"""The process group of a round, in one process; run.py starts it in an interpreter that has PyTorch."""
import concurrent.futures
import contextlib
import datetime
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import pytest
import torch
import torch.distributed as dist

from lockstep import gradients, rounds
from lockstep.control import Control
from lockstep.pod import Pod
from lockstep.rounds import Round, listen

LIMIT = 60  # seconds


def test_an_abort_completes_what_waits_for_other_ranks():
    with listen() as listener:
        place = {"round": 3, "rank": 0, "world": 1, "storeHost": "127.0.0.1", "storePort": listener.getsockname()[1]}
        alone = Round(place, torch.device("cpu"))
        alone.connect(listener)
    assert alone.all_reduce(torch.ones(3)).wait().tolist() == [1, 1, 1]
    assert not alone.waits_for_peers
    stuck = torch.futures.Future()
    alone._open.add(stuck)  # as of a collective for which another rank does not come
    assert alone.waits_for_peers
    alone.abort("a rank has left")
    alone.abort("a connection failed")
    for future in (stuck, alone.all_reduce(torch.ones(3))):
        with pytest.raises(RuntimeError, match="a rank has left"):
            future.wait()
    assert alone.failure == "a rank has left"
    alone.drop()


def test_a_round_is_dropped_while_a_callback_of_its_group_still_runs(monkeypatch):
    complete, of_group = Round._complete, threading.Event()

    def complete_slowly(*arguments):
        complete(*arguments)
        if threading.current_thread() is not threading.main_thread():  # which runs it where the sum was quicker
            of_group.set()
            time.sleep(0.2)  # the fault: a thread of the group that comes back to the interpreter late

    monkeypatch.setattr(Round, "_complete", complete_slowly)
    with listen() as listener:
        alone = Round({"round": 3, "rank": 0, "world": 1, "storeHost": "127.0.0.1", "storePort": listener.getsockname()[1]}, torch.device("cpu"))
        alone.connect(listener)
    for _ in range(1000):
        assert alone.all_reduce(torch.ones(3)).wait().tolist() == [1, 1, 1]
        if of_group.is_set():
            break
    assert of_group.is_set()
    alone.drop()


def test_a_script_may_destroy_the_default_group_at_its_end():
    with listen() as listener:
        alone = Round({"round": 3, "rank": 0, "world": 1, "storeHost": "127.0.0.1", "storePort": listener.getsockname()[1]}, torch.device("cpu"))
        alone.connect(listener)
    dist.destroy_process_group()
    alone.drop()


def test_a_script_may_use_the_store_of_the_round():
    inner = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    of_round = rounds.RoundStore(inner, lambda operation: operation(), lambda: None)  # which the other does not keep alive
    store = dist.PrefixStore("of the script", of_round)
    before = store.num_keys()
    assert (store.add("count", 2), store.compare_set("key", "", "first"), store.get("key")) == (2, b"first", b"first")
    assert store.num_keys() == before + 2
    assert store.delete_key("key") and not store.check(["key"])


def test_an_abort_ends_the_wait_for_a_rank_that_does_not_come():
    with listen() as listener:
        place = {"round": 3, "rank": 0, "world": 2, "storeHost": "127.0.0.1", "storePort": listener.getsockname()[1]}
        waits = Round(place, torch.device("cpu"))
        abort = threading.Timer(0.2, waits.abort, ["a rank has left the round"])  # the fault: when it leaves
        abort.start()
        with pytest.raises(RuntimeError, match="a rank has left the round"):
            waits.connect(listener)
        abort.join()


@pytest.fixture
def host():
    """A process that hosts the store of a round of two ranks."""
    serve = ("import sys, torch.distributed as dist; store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False); "
             "print(store.port, flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.port = int(process.stdout.readline())
        yield process
        process.kill()


@pytest.mark.parametrize("has_arrived", [False, True])
def test_an_abort_ends_the_wait_for_a_store_whose_host_is_silent(host, has_arrived):
    """As one of a node that is cut off."""
    others = dist.TCPStore("127.0.0.1", host.port, is_master=False)
    waits = Round({"round": 3, "rank": 1, "world": 2, "storeHost": "127.0.0.1", "storePort": host.port}, torch.device("cpu"))
    if not has_arrived:
        host.send_signal(signal.SIGSTOP)
    with listen() as listener, concurrent.futures.ThreadPoolExecutor() as threads:
        connects = threads.submit(waits.connect, listener)
        while has_arrived and others.add("arrived", 0) == 0:
            os.sched_yield()
        host.send_signal(signal.SIGSTOP)  # the fault
        while not waits.waits_for_peers:
            os.sched_yield()
        waits.abort("a rank has left the round")
        assert "a rank has left the round" in str(connects.exception(LIMIT / 2))


@pytest.fixture
def control(monkeypatch):
    """Of a rank whose supervisor says what the test says."""
    monkeypatch.setattr(Control, "_read", lambda self: None)
    with socket.socket(socket.AF_UNIX) as supervisor:
        supervisor.bind("")  # the kernel chooses an abstract name
        supervisor.listen()
        yield Control(supervisor.getsockname()[1:].decode())


ROUND_OVER = {"type": "roundOver", "round": 3, "mode": 0}  # with a request to yield


@pytest.mark.parametrize("rank", [0, 1])  # 1 waits for the store of rank 0
def test_a_rank_that_waits_for_the_others_of_a_round_leaves_when_the_round_is_over(control, rank):
    """One of them may have ended before it joined, and come to the next round only."""
    with listen() as listener, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = (listener if rank == 0 else unused).getsockname()[1]
        control._handle({"type": "assignment", "round": 3, "rank": rank, "world": 2, "storeHost": "127.0.0.1", "storePort": port})
        waits = Round(control.wait_for_assignment(), torch.device("cpu"))
        control.attach(waits)
        over = threading.Timer(0.2, control._handle, [ROUND_OVER])  # the fault: when it is over
        over.start()
        with pytest.raises(RuntimeError, match="the round was over before all of its ranks had arrived"):
            waits.connect(listener)
        over.join()


def test_a_round_whose_ranks_have_all_arrived_is_entered_even_if_it_is_to_end(control):
    """Else a job to which workers come one after another would finish no step meanwhile."""
    with listen() as listener:
        control._handle({"type": "assignment", "round": 3, "rank": 0, "world": 1, "storeHost": "127.0.0.1", "storePort": listener.getsockname()[1]})
        alone = Round(control.wait_for_assignment(), torch.device("cpu"))
        control._handle(ROUND_OVER)
        control.attach(alone)
        alone.connect(listener)
    assert alone.all_reduce(torch.ones(1)).wait().tolist() == [1]
    alone.drop()


def test_no_rank_waits_for_one_that_left_before_all_had_arrived():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place = {"round": 3, "world": 3, "storeHost": "127.0.0.1", "storePort": store.port}
    left, late = (Round({**place, "rank": rank}, torch.device("cpu")) for rank in (1, 2))
    left.leave_unless_complete()
    for each in (left, late):
        with listen() as listener, pytest.raises(RuntimeError, match="the round was over before all of its ranks had arrived"):
            each.connect(listener)
        store.add("arrived", 1)  # once for the rank that is not here


@pytest.fixture
def published(monkeypatch):
    """The keys under which ranks of this process publish their addresses for Gloo."""
    keys = queue.SimpleQueue()

    class Store(rounds.RoundStore):
        def set(self, key, value):
            super().set(key, value)
            keys.put(key)

    monkeypatch.setattr(rounds, "RoundStore", Store)
    return keys


@pytest.fixture
def connect():
    """Enters a round as rank 0, which finds that all ranks have arrived; the others do not connect."""
    entered = []

    def connect(number, world):
        with listen() as listener:
            place = {"round": number, "rank": 0, "world": world, "storeHost": "127.0.0.1", "storePort": listener.getsockname()[1]}
            entered.append(Round(place, torch.device("cpu")))
            arrive = threading.Thread(target=lambda: dist.TCPStore(place["storeHost"], place["storePort"], is_master=False, wait_for_workers=False).add("arrived", world - 1))
            arrive.start()
            try:
                entered[-1].connect(listener)
            finally:
                arrive.join()

    connect.entered = entered
    yield connect
    for each in entered:
        each.drop()


def test_an_abort_ends_the_wait_for_a_rank_that_arrives_and_does_not_connect(connect, published):
    def abort_in_gloo():
        published.get()
        connect.entered[0].abort("a rank has left the round")

    abort = threading.Thread(target=abort_in_gloo)
    abort.start()
    with pytest.raises(RuntimeError, match="a rank has left the round"):
        connect(3, world=2)
    abort.join()


def test_ranks_find_each_other_after_one_has_failed_to_connect(connect, published, monkeypatch):
    """PyTorch derives the keys from a count of its own."""
    monkeypatch.setattr(rounds, "_UNABORTABLE_LIMIT", datetime.timedelta(milliseconds=200))  # the fault: a rank that is not there any more
    with pytest.raises(RuntimeError, match=r"a rank has waited for another one for 0\.2 s"):
        connect(3, world=2)
    connect(4, world=1)
    assert published.get() == published.get()


@pytest.fixture
def both():
    """Both ranks of a round, in this process."""
    with listen() as listener, listen() as unused:
        place = {"round": 3, "world": 2, "storeHost": "127.0.0.1", "storePort": listener.getsockname()[1]}
        ranks = [Round({**place, "rank": rank}, torch.device("cpu"), Pod(0, 1, mesh=True)) for rank in range(2)]
        with concurrent.futures.ThreadPoolExecutor() as threads:
            for done in [threads.submit(each.connect, own) for each, own in zip(ranks, (listener, unused))]:
                done.result()
        yield ranks
        for each in ranks:
            each.drop()


@contextlib.contextmanager
def abort_when_it_waits(rank):
    is_over = threading.Event()

    def abort():
        while not rank.waits_for_peers and not is_over.is_set():
            os.sched_yield()
        rank.abort("a rank has left")

    with concurrent.futures.ThreadPoolExecutor() as threads:
        threads.submit(abort)
        try:
            yield
        finally:
            is_over.set()


def on_both(ranks, act):
    """What it returns for each of them."""
    with concurrent.futures.ThreadPoolExecutor() as threads:
        return [done.result() for done in [threads.submit(act, each) for each in ranks]]


def buffers_of(rank):
    """Of sizes with which none but the first begins where its type may begin; the last one has gaps between its values."""
    one = torch.full((1,), rank, dtype=torch.uint8)
    return {"byte": one, "half": torch.full((3,), rank + 0.5).half(), "count": torch.tensor(7 + rank), "mask": torch.tensor([rank == 0] * 5),
            "complex": torch.tensor([[1 + 2j, rank]]), "gaps": torch.arange(8.0).add(rank)[::2]}


def test_all_ranks_take_the_buffers_of_rank_0(both):
    def take(rank):
        buffers = buffers_of(rank.rank)
        gradients._take_buffers_of_rank_0(rank, buffers)
        return buffers

    expected = buffers_of(0)
    for taken in on_both(both, take):
        assert {name: each.tolist() for name, each in taken.items()} == {name: each.tolist() for name, each in expected.items()}
        assert all(taken[name].dtype == each.dtype for name, each in expected.items())


def test_an_abort_ends_the_wait_for_the_buffers_of_rank_0_and_changes_none(both):
    buffers = buffers_of(1)
    with abort_when_it_waits(both[1]), pytest.raises(RuntimeError, match="a rank has left"):
        gradients._take_buffers_of_rank_0(both[1], buffers)
    assert {name: each.tolist() for name, each in buffers.items()} == {name: each.tolist() for name, each in buffers_of(1).items()}


def test_what_no_abort_reaches_begins_when_all_ranks_are_there(both):
    begun = []
    with abort_when_it_waits(both[1]), pytest.raises(RuntimeError, match="a rank has left"):
        both[1].together(lambda: begun.append(1))
    assert not begun


@pytest.fixture
def short_collectives(monkeypatch):
    monkeypatch.setattr(rounds, "_COLLECTIVE_LIMIT", datetime.timedelta(milliseconds=200))


@pytest.mark.skipif(not rounds.CHANGES_LIMITS, reason="before PyTorch 2.9, the limit is the same for both")
def test_ranks_may_come_to_a_collective_later_than_to_a_connection(short_collectives, both):
    with pytest.raises(RuntimeError, match="200 ?ms"):  # not the 10 s of a connection
        both[0].all_reduce(torch.ones(1)).wait()


@pytest.mark.skipif(not rounds.CHANGES_LIMITS, reason="before PyTorch 2.9, the limit is that of a connection, 2 minutes")
def test_what_no_abort_reaches_ends_soon_when_the_network_fails(both, monkeypatch):
    monkeypatch.setattr(rounds, "_UNABORTABLE_LIMIT", datetime.timedelta(milliseconds=200))  # the fault: rank 0 sends nothing

    def act(rank):
        def wait_in_gloo():
            if rank.rank == 1:
                rank._group.broadcast([torch.zeros(1)], dist.BroadcastOptions()).wait()
            return rank.rank
        try:
            return rank.together(wait_in_gloo)
        except RuntimeError:
            return rank.failure

    done, failure = on_both(both, act)
    assert done == 0 and "200" in failure
    assert both[0].failure is None


def test_a_round_that_has_failed_is_dropped_by_an_interpreter_that_starts_no_more_threads(both, monkeypatch):
    def start(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")  # as Python 3.12 in functions of atexit

    both[0].abort("a rank has left the round")
    monkeypatch.setattr(threading.Thread, "start", start)
    both[0].drop()
    monkeypatch.undo()


@pytest.mark.parametrize("operation", ["gather", "broadcast", "receive", "send"])
def test_an_abort_ends_an_operation_that_a_rank_does_not_take_part_in(both, operation):
    round_, tensor = both[0], torch.ones(40 << 20 if operation == "send" else 1)  # more than a connection holds
    arguments = {"gather": (), "broadcast": (1,), "receive": (1,), "send": (1,)}[operation]
    with concurrent.futures.ThreadPoolExecutor() as threads:
        waits = threads.submit(getattr(round_, operation), tensor, *arguments)
        while not round_.waits_for_peers:
            waits.exception(timeout=0) if waits.done() else os.sched_yield()
        round_.abort("a rank has left the round")
        assert str(waits.exception(LIMIT)) == "a rank has left the round"


def test_what_arrives_after_an_abort_is_not_written_into_the_state(both):
    own = torch.zeros(1)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        waits = threads.submit(both[0].receive, own, 1)
        while not both[0].waits_for_peers:
            os.sched_yield()
        both[0].abort("a rank has left the round")
        assert isinstance(waits.exception(LIMIT), RuntimeError)
    both[1].send(torch.ones(1), 0)
    both[1]._group.send([torch.ones(40 << 20)], 0, 1)  # the first has arrived when this one fails
    assert own.item() == 0


def test_what_is_sent_and_gathered_arrives(both):
    first, second = torch.arange(3.), torch.zeros(3)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        sent = threads.submit(both[0].send, first, 1)
        both[1].receive(second, 0)
        sent.result()
        shared = threads.submit(both[0].broadcast, first + 1, 0)
        assert second.tolist() == [0, 1, 2]
        both[1].broadcast(second, 0)
        shared.result()
        gathered = threads.submit(both[0].gather, first)
        assert [each.tolist() for each in both[1].gather(second)] == [[0, 1, 2], [1, 2, 3]]
        gathered.result()
    assert not any(each.waits_for_peers for each in both)


@pytest.mark.parametrize("rest, patience", [(None, 5), (60, 5), (1, 0.5), (-1, 0)])
def test_the_end_of_a_process_waits_for_threads_as_long_as_there_is_time(monkeypatch, rest, patience):
    waited = []
    thread = types.SimpleNamespace(name="lockstep-drop", join=waited.append)
    monkeypatch.setattr(rounds.threading, "enumerate", lambda: [thread])  # not those that other cases have left
    monkeypatch.setattr(rounds.time, "monotonic", lambda: 1000.0)
    rounds.join_threads(None if rest is None else 1000 + rest)
    assert waited == [patience]
