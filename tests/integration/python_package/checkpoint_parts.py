"""Checkpoints in memory and in the folder; run.py starts it in an interpreter that has PyTorch."""
import copy
import io
import os
import tempfile
import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing

import lockstep
from lockstep import checkpoint, copies, memory, saved_tensor, storing
from lockstep.pod import Pod
from lockstep.saved_state import SavedState
from lockstep.state import State

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
STEP = 120


def state(value=1.0):
    """More than a block, a number of a single dimension, and what is no tensor."""
    return {"model": {"large": torch.full((3 << 18,), value), "bias": torch.arange(5)}, "rate": value}


def stored_at(folder, step):
    return folder / f"step-{step:012d}"


def settle():
    """Until nothing is being stored."""
    while storing.is_busy():
        storing._being_stored.segment.keeper.join()


@pytest.fixture
def program(monkeypatch):
    """The memory as `lockstep program` owns it. What it returns is the next process of that program."""
    files = [os.memfd_create("test") for _ in range(2)]

    def start():
        settle()
        memory.segments.cache_clear()
    monkeypatch.setenv(memory.VARIABLE, ":".join(f"/proc/{os.getpid()}/fd/{file}" for file in files))
    monkeypatch.setattr(storing, "_newest", None)
    start()
    yield start
    start()
    for file in files:
        os.close(file)


@pytest.fixture
def nowhere(tmp_path):
    """A folder that nothing can be stored in."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "checkpoints"


def save(folder, value=1.0, step=STEP, **more):
    dcp.save(state(value), storage_writer=checkpoint.Writer(folder, step, **more))


def load(folder, **more):
    reader = checkpoint.Reader(folder, no_dist=True, **more)
    found = state(0.0)
    if reader.step is not None:
        dcp.load(found, storage_reader=reader)
    return reader.step, found["rate"], found["model"]["large"][-1].item()


def until_stored(folder, step=STEP):
    settle()
    assert (stored_at(folder, step) / ".metadata").exists()


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_the_next_process_finds_it_in_memory(program, nowhere):
    save(nowhere)
    program()
    assert load(nowhere) == (STEP, 1.0, 1.0)


LARGE = torch.arange(3 << 18, dtype=torch.float32).view(1024, -1)


@pytest.mark.parametrize("kind, loads", [(torch.float32, 0), (torch.int64, 0), (torch.complex64, 1), ("transposed", 1), ("parameter", 0)], ids=str)
def test_a_large_plain_tensor_is_read_without_torch_load(program, nowhere, monkeypatch, kind, loads):
    saved = {"transposed": LARGE.t(), "parameter": torch.nn.Parameter(LARGE)}.get(kind, LARGE.to(kind) if isinstance(kind, torch.dtype) else None)
    dcp.save({"tensor": saved}, storage_writer=checkpoint.Writer(nowhere, STEP))
    program()
    calls = []
    load_it = torch.load
    monkeypatch.setattr(torch, "load", lambda *arguments, **more: calls.append(arguments) or load_it(*arguments, **more))
    found = {"tensor": torch.zeros_like(saved)}
    dcp.load(found, storage_reader=checkpoint.Reader(nowhere, no_dist=True))
    assert torch.equal(found["tensor"], saved)
    assert len(calls) == loads


def test_rows_of_a_tensor_are_read_and_columns_left_to_torch_load():
    file = io.BytesIO()
    torch.save(LARGE[5:], file)  # which begins inside of its storage
    rows, columns = torch.zeros(7, LARGE.shape[1]), torch.zeros(1019, 3)
    assert saved_tensor.read_into(rows, file, torch.Size([2, 0]))
    assert torch.equal(rows, LARGE[7:14])
    assert not saved_tensor.read_into(columns, file, torch.Size([0, 4]))
    assert not saved_tensor.read_into(torch.zeros(LARGE.shape, dtype=torch.float64), file, torch.Size([0, 0]))


def test_two_segments_hold_the_newest_and_the_one_before(program, nowhere):
    for step in (1, 2, 3):
        save(nowhere, float(step), step)
        program()
    assert load(nowhere) == (3, 3.0, 3.0)
    assert load(nowhere, at_most=2) == (2, 2.0, 2.0)
    assert load(nowhere, at_most=1)[0] is None


def allocated():
    return [segment.allocated() for segment in memory.segments()]


def test_the_memory_of_the_next_one_is_allocated_before_it_is_saved(program, nowhere):
    save(nowhere)
    for segment in memory.segments():
        if segment.keeper is not None:
            segment.keeper.join()
    assert min(allocated()) > LARGE.nbytes
    program()
    assert load(nowhere) == (STEP, 1.0, 1.0)


def test_what_is_mapped_beyond_the_end_of_a_smaller_one_is_not_touched(program):
    """It would end the process."""
    segment = memory.segments()[0]
    segment.allocate(8 << 20)
    for step, size in enumerate((6 << 20, 1 << 20, 6 << 20)):
        own, copy = bytes([step]) * size, bytes([step + 10]) * (4 << 20)
        segment.begin("folder", step)
        with segment.create("own") as file:
            file.write(own)
        segment.complete()
        assert segment._map is not None and segment._mapped > 0
        place = segment.reserve(len(copy), memory.sums_of(lambda offset, length: copy[offset:offset + length], len(copy)))
        segment.fill(place, 0, memoryview(copy))
        segment.add({"copy": place})
        assert (segment.read("own", 0, size), segment.read("copy", 0, len(copy))) == (own, copy)
        assert segment.damage({"own", "copy"}) is None


def test_nothing_is_allocated_that_does_not_fit(program, monkeypatch):
    monkeypatch.setattr(memory, "library", lambda: type("Full", (), {"lockstep_available_memory": staticmethod(lambda: 1e6)}))
    memory.allocate_all(LARGE.nbytes)
    assert allocated() == [0, 0]


@pytest.mark.parametrize("completes", ["the metadata", "a copy of it"])
def test_it_is_stored_and_readers_of_dcp_read_it(program, tmp_path, monkeypatch, completes):
    finish = dcp.FileSystemWriter.finish
    if completes == "a copy of it":  # as DCP of PyTorch 2.11
        monkeypatch.setattr(dcp.FileSystemWriter, "finish", lambda self, metadata, results: finish(self, copy.copy(metadata), results))
    save(tmp_path)
    until_stored(tmp_path)
    found = state(0.0)
    dcp.load(found, storage_reader=dcp.FileSystemReader(stored_at(tmp_path, STEP)))
    assert torch.equal(found["model"]["large"], state()["model"]["large"]) and found["rate"] == 1.0


def test_it_reads_what_dcp_has_written(program, tmp_path):
    dcp.save(state(7.0), storage_writer=dcp.FileSystemWriter(stored_at(tmp_path, STEP)))
    assert load(tmp_path) == (STEP, 7.0, 7.0)


def test_a_flipped_bit_in_memory_is_named_and_the_folder_is_read(program, tmp_path, caplog):
    save(tmp_path)
    until_stored(tmp_path)
    segment = next(each for each in memory.segments() if each.step == STEP)
    place = next(file for name, file in segment.files.items() if name.endswith(".distcp"))
    segment._write(b"\xff\x00\xff", place.offset + place.bytes // 2)
    program()
    assert load(tmp_path) == (STEP, 1.0, 1.0)
    assert f"the checkpoint of step {STEP} in memory is not used: block 1 of __0_" in caplog.text


def test_a_flipped_bit_in_the_folder_is_named(program, tmp_path):
    save(tmp_path)
    until_stored(tmp_path)
    memory.segments.cache_clear()
    os.environ[memory.VARIABLE] = ""
    file, = stored_at(tmp_path, STEP).glob("*.distcp")
    flip(file)
    with pytest.raises(dcp.api.CheckpointException, match=f"{file} is damaged: block 1"):
        load(tmp_path)


def test_one_that_was_not_complete_is_not_used(program, nowhere, monkeypatch):
    save(nowhere, 1.0, 1)
    program()

    def ends(self):
        raise OSError("the process ends")
    monkeypatch.setattr(memory.Segment, "complete", ends)
    save(nowhere, 2.0, 2)
    program()
    assert load(nowhere) == (1, 1.0, 1.0)


def test_only_the_newest_stay_in_the_folder(program, tmp_path):
    (stored_at(tmp_path, 5)).mkdir()  # of a save that was interrupted
    for step in (10, 20, 30, 40):
        save(tmp_path, step=step, keep=2)
        until_stored(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000000030", "step-000000000040"]


def test_what_does_not_fit_is_stored_at_once(program, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(memory, "library", lambda: type("Full", (), {"lockstep_available_memory": staticmethod(lambda: 1000.0)}))
    save(tmp_path)
    assert (stored_at(tmp_path, STEP) / ".metadata").exists()
    assert "does not fit into the memory" in caplog.text
    assert load(tmp_path) == (STEP, 1.0, 1.0)


def test_a_copy_for_this_pod_alone_is_left_out_where_it_does_not_fit(program, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(memory, "library", lambda: type("Full", (), {"lockstep_available_memory": staticmethod(lambda: 10.0)}))
    SavedState(tmp_path, State([network()], torch.device("cpu")), Pod()).save(STEP, stores=False, on_stored=lambda folder: None)
    assert not list(tmp_path.iterdir()) and "it does not fit" in caplog.text


def test_while_one_is_stored_the_next_are_in_memory_and_the_newest_is_stored_at_the_end(program, tmp_path, monkeypatch):
    may_store, write = threading.Event(), storing._write
    monkeypatch.setattr(storing, "_write", lambda *arguments: may_store.wait() and write(*arguments))
    for step in (1, 2, 3):
        save(tmp_path, float(step), step)
    assert load(tmp_path) == (3, 3.0, 3.0)
    may_store.set()
    until_stored(tmp_path, 1)
    assert not stored_at(tmp_path, 3).exists()
    storing._store_the_newest()
    assert (stored_at(tmp_path, 3) / ".metadata").exists() and not stored_at(tmp_path, 2).exists()


def test_one_that_could_not_be_stored_is_stored_at_the_end(program, tmp_path, monkeypatch):
    write = storing._write

    def full(*arguments):
        raise OSError("No space left on device")
    monkeypatch.setattr(storing, "_write", full)
    save(tmp_path)
    settle()
    assert not (stored_at(tmp_path, STEP) / ".metadata").exists()
    monkeypatch.setattr(storing, "_write", write)  # there is room again
    storing._store_the_newest()
    assert (stored_at(tmp_path, STEP) / ".metadata").exists()


def test_a_job_that_cannot_store_at_once_continues(program, nowhere, monkeypatch, caplog):
    monkeypatch.setattr(memory, "library", lambda: type("Full", (), {"lockstep_available_memory": staticmethod(lambda: 10.0)}))
    assert train(nowhere, 2)[0] == 0
    assert "the checkpoint of step 2 is not stored: " in caplog.text and "Not a directory" in caplog.text


def network():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))


def train(folder, steps):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    job = lockstep.join(model, optimizer, checkpoints=folder)
    begin = job.finished_steps
    for batch in job.batches(torch.utils.data.TensorDataset(torch.rand(64, 4)), 4, steps=steps):
        with job.step():
            optimizer.zero_grad()
            job.model(batch.data[0]).sum().backward()
            optimizer.step()
        if job.finished_steps % 2 == 0:
            job.save()
            settle()  # else the next one may be in memory only
    return begin, model, optimizer


def test_a_job_continues_from_its_checkpoint(program, tmp_path, caplog):
    _, model, optimizer = train(tmp_path, 4)
    program()
    begin, again, its = train(tmp_path, 4)
    assert begin == 4
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert all(torch.equal(mine["exp_avg"], other["exp_avg"]) for mine, other in zip(optimizer.state.values(), its.state.values()))
    memory.segments.cache_clear()
    os.environ[memory.VARIABLE] = ""
    flip(next(stored_at(tmp_path, 4).glob("*.distcp")))
    assert train(tmp_path, 4)[0] == 2
    assert "the checkpoint of step 4 is not used: " in caplog.text and "is damaged: block 0" in caplog.text


def test_a_job_allocates_the_memory_after_its_first_step(program, tmp_path):
    train(tmp_path, 1)
    for thread in threading.enumerate():
        if thread.name == "lockstep-allocation":
            thread.join()
    assert min(allocated()) > 0


def test_mistakes_of_a_job_are_named(program, tmp_path):
    with pytest.raises(lockstep.LockstepError, match="save needs a folder"):
        lockstep.join(network()).save()
    with pytest.raises(lockstep.LockstepError, match="either `checkpoints`"):
        lockstep.join(network(), checkpoints=tmp_path, step=3)
    train(tmp_path, 2)
    until_stored(tmp_path, 2)
    with pytest.raises(lockstep.LockstepError, match="the checkpoint has no state of StepLR"):
        model = network()
        optimizer = torch.optim.Adam(model.parameters())
        lockstep.join(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1), checkpoints=tmp_path)


RANKS = 2


def rank(index, meeting, folder, phase, files):
    os.environ[memory.VARIABLE] = files[index]
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=index, world_size=RANKS)
    if phase == "save":
        copies = 2 if folder.endswith("copies") else 1
        os.environ["GROUP_RANK"] = str(index)
        written, write = [], storing._write
        storing._write = lambda save, name: (written.append(name), write(save, name))
        dcp.save({f"of-{index}": torch.full((3 << 18,), float(index))}, storage_writer=checkpoint.Writer(folder, STEP, copies=copies))
        settle()
        assert {name for name in written if name.endswith(".distcp")} == {name for name in written if name.startswith(f"__{index}_")} != set(), written
    else:
        if phase != "load":  # the ranks are in two pods
            os.environ["GROUP_RANK"] = str(index)
        reader = checkpoint.Reader(folder)
        assert reader.step == (None if phase == "nothing" else STEP), reader.step
        if reader.step is not None:
            found = {f"of-{each}": torch.zeros(3 << 18) for each in range(RANKS)}
            dcp.load(found, storage_reader=reader)
            assert [found[f"of-{each}"][-1].item() for each in range(RANKS)] == [0.0, 1.0]
            receives = {"load": False, "load in two pods": True, "load a copy": index == 0}
            assert bool(reader._received) == receives[phase], f"{phase}: it received {list(reader._received)}"
    dist.barrier()
    os._exit(0)  # PyTorch 2.15 aborts some processes that have used Gloo in their static destructors


def run_ranks(folder, phase, files):
    with tempfile.TemporaryDirectory() as meeting:
        torch.multiprocessing.spawn(rank, (f"{meeting}/store", str(folder), phase, files), nprocs=RANKS)


@pytest.fixture
def programs():
    made = [[os.memfd_create("test") for _ in range(2)] for _ in range(RANKS)]
    yield [":".join(f"/proc/{os.getpid()}/fd/{file}" for file in files) for files in made]
    for files in made:
        for file in files:
            os.close(file)


def test_ranks_read_their_own_memory_that_of_others_and_the_folder(programs, tmp_path):
    folder, away = tmp_path / "checkpoints", tmp_path / "away"
    run_ranks(folder, "save", programs)  # the processes end when it is stored
    folder.rename(away)
    run_ranks(folder, "load", programs[::-1])  # other ranks than they were
    run_ranks(folder, "load in two pods", programs)
    run_ranks(folder, "nothing", [programs[0], ""])  # a pod is lost, and with it a part
    away.rename(folder)
    run_ranks(folder, "load", [programs[0], ""])


def test_a_pod_is_lost_whose_part_another_one_has(programs, tmp_path):
    folder = tmp_path / "copies"
    run_ranks(folder, "save", programs)
    folder.rename(tmp_path / "away")
    run_ranks(folder, "load a copy", ["", programs[1]])


def test_partners_are_in_other_pods():
    for pods in (["a", "a", "b", "b"], ["a", "b", "b", "c"], ["a", "a", "a", "b"]):
        partners = copies.partners_of(pods)
        for rank, found in enumerate(partners):
            assert pods[found.send_to] != pods[rank] and rank in partners[found.send_to].receive_from, (pods, partners)
        assert sorted(source for found in partners for source in found.receive_from) == list(range(len(pods)))
    assert copies.partners_of(["a", "a"]) is None
