"""Ranks that train on a device, in `lockstep run`; the device is the CPU behind the interface of NCCL's (gloo_device.cc)."""
import datetime
import json
import os
import pathlib
import shutil
import signal

import checkpoints
from build_folder import BIN, BUILD
from cases import expect
from local_run import Run, complete_this_epoch, expect_complete, logged, manifest

DEVICE_MODULE = BUILD / "tests/integration/device/libgloo_device.so"
EPOCHS = 12
LONG = 10_000  # epochs: it is stopped before


def job(folder, epochs=EPOCHS, **training):
    """Of three ranks that ask for a GPU each."""
    path = manifest(folder, epochs=epochs, **training)
    document = json.loads(path.read_text())
    document["spec"]["worker"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    path.write_text(json.dumps(document))
    return path


def a_rank_of_its_own(folder, *libraries):
    """A copy of lockstep-rank, beside which the libraries lie as in an image."""
    for name in ("bin", "lib", "sums"):
        pathlib.Path(folder, name).mkdir()
    shutil.copy(f"{BIN}/lockstep-rank", f"{folder}/bin/lockstep-rank")
    for library in libraries:
        shutil.copy(library, f"{folder}/lib/liblockstep_cuda.so")
    return {"LOCKSTEP_RANK_PROGRAM": f"{folder}/bin/lockstep-rank", "LOCKSTEP_TEST_DEVICE_SUMS": f"{folder}/sums"}


def with_the_device(folder):
    return a_rank_of_its_own(folder, DEVICE_MODULE)


def processes_that_summed(folder):
    return {int(path.name) for path in pathlib.Path(folder, "sums").iterdir()}


def test_without_one_it_says_so_and_takes_the_cpu(folder):
    with Run(folder, job(folder, cudaGraph=True), a_rank_of_its_own(folder)) as run:
        expect_complete(run, EPOCHS)
    expect(len(logged(folder, "no CUDA graph: training on the CPU")) == 3, "cudaGraph was ignored without a word")
    reported = logged(folder, "training on the CPU, though the job asks for GPUs")
    expect(len(reported) == 3 and all(t["requested_gpus"] == 1 and t["reason"] for t in reported), f"{reported}")


def test_the_ranks_go_on_when_one_is_killed(folder):
    environment = with_the_device(folder)
    with Run(folder, job(folder, LONG), environment) as run:
        run.until_step(100)
        joined, before = run.until_joined(3), run.ranks()
        os.kill(before[1], signal.SIGKILL)
        run.until_joined(3, after=joined)
        after = run.ranks()
        expect(len(set(after) - set(before)) == 1, f"{before} became {after}")
        expect(processes_that_summed(folder) == {*before, *after}, "gradients were summed beside the device's group")
        reported = logged(folder, "training on a device")
        expect(len(reported) == 4, f"not each of the four processes found its device: {reported}")
        complete_this_epoch(run, folder, lambda epochs: job(folder, epochs), environment)


def test_each_survivor_of_a_hang_tells_at_which_collective_it_was(folder):
    def impatient(epochs):
        path = job(folder, epochs)
        document = json.loads(path.read_text())
        document["spec"]["healthPolicy"] = {"stepTimeoutSeconds": 6}
        path.write_text(json.dumps(document))
        return path

    environment = with_the_device(folder)
    with Run(folder, impatient(LONG), environment) as run:
        run.until_step(100)
        joined, before = run.until_joined(3), run.ranks()
        os.kill(before[1], signal.SIGSTOP)
        run.until_joined(3, after=joined)
        expect(before[1] not in run.ranks(), "the stopped rank is still there")
        complete_this_epoch(run, folder, impatient, environment)
    reported = logged(folder, "the round broke at a collective of the device")
    expect({t["rank"] for t in reported} == {0, 2} and len(reported) == 2, f"not each of the two that waited, once: {reported}")
    expect(all(t["collective"] == "gloo:all_reduce" and t["sequence"] > 100 for t in reported), f"{reported}")
    # What the stopped rank gave last may have reached one of the two only.
    expect(abs(reported[0]["sequence"] - reported[1]["sequence"]) <= 1 and reported[0]["round"] == reported[1]["round"], f"far apart: {reported}")
    for t in reported:
        trace = json.loads(pathlib.Path(folder, "checkpoints", "flight", f"round-{t['round']}-rank-{t['rank']}.json").read_text())
        expect(t["sequence"] in {entry["collective_seq_id"] for entry in trace["entries"]}, f"{t} is not in its trace")


def phases_in_the_trace(folder):
    trace = json.loads(pathlib.Path(folder, "checkpoints/profile/steps-90-92-rank-0.json").read_text())
    return {event["name"] for event in trace["traceEvents"]} & {"forward", "backward", "graph", "optimizer"}


def test_recorded_steps_learn_the_same(folder):
    weights = []
    for name, phases in ("passes", {"forward", "backward", "optimizer"}), ("graphs", {"graph", "optimizer"}):
        inside = pathlib.Path(folder, name)
        inside.mkdir()
        path = job(inside, cudaGraph=name == "graphs")
        with Run(inside, path, {**with_the_device(inside), "LOCKSTEP_PROFILE": "90-92"}) as run:
            expect_complete(run, EPOCHS)
        expect(phases_in_the_trace(inside) == phases, f"{name}: {phases_in_the_trace(inside)}")
        weights.append(checkpoints.digest_of_tensors(checkpoints.newest(inside / "checkpoints")[1]))
    expect(weights[0] == weights[1], f"{weights}")


def test_recorded_steps_go_on_when_a_rank_is_killed(folder):
    environment = with_the_device(folder)
    with Run(folder, job(folder, LONG, cudaGraph=True), environment) as run:
        run.until_step(100)
        joined = run.until_joined(3)
        os.kill(run.ranks()[1], signal.SIGKILL)
        run.until_joined(3, after=joined)
        expect(len(logged(folder, "training on a device")) == 4, "not each of the four processes found its device")
        complete_this_epoch(run, folder, lambda epochs: job(folder, epochs, cudaGraph=True), environment)


def test_a_rank_whose_abort_hangs_begins_anew(folder):
    hangs = pathlib.Path(folder, "hangs")
    hangs.touch()
    environment = {**with_the_device(folder), "LOCKSTEP_TEST_ABORT_HANGS": str(hangs)}
    with Run(folder, job(folder, LONG), environment) as run:
        run.until_step(100)
        joined, workers, before = run.until_joined(3), run.workers(), run.ranks()
        os.kill(before[1], signal.SIGKILL)
        run.until("two new ranks", lambda: len(set(run.ranks()) - set(before)) == 2 and len(run.ranks()) == 3)
        expect(set(run.ranks()) & {before[0], before[2]}, "nobody was left who holds the state")
        expect(run.workers() == workers, "a pod was replaced")
        run.until_joined(3, after=joined)
        complete_this_epoch(run, folder, lambda epochs: job(folder, epochs), environment)
    failures = {(r["pod"], r["reason"]) for r in logged(folder, "rank failed")}  # said by the rank and by its supervisor
    expect([reason for _, reason in failures] == ["aborting the second Gloo group: no end within 10000 ms"], f"{failures}")


def test_rounds_that_break_come_ever_more_slowly_and_none_ends_the_job(folder):
    def breaks():
        """When ranks broke rounds; what their supervisors say of it has no step."""
        return sorted(datetime.datetime.fromisoformat(r["time"]).timestamp() for r in logged(folder, "round broken") if "step" in r)

    fails = pathlib.Path(folder, "fails")
    fails.touch()
    with Run(folder, job(folder), {**with_the_device(folder), "LOCKSTEP_TEST_CONNECT_FAILS": str(fails)}) as run:
        run.until("broken rounds", lambda: len(breaks()) >= 3 * 6)
        before = run.ranks()
        fails.unlink()
        expect_complete(run, EPOCHS)
    expect(len(before) == 3, f"{before}")
    took = breaks()[3 * 6 - 1] - breaks()[0]  # one of the three broke six by then: 100, 200 and 400 ms lie between them
    expect(took >= 0.7, f"eighteen breaks in {took:.2f} s")
    print(f"     eighteen breaks in {took:.1f} s")
