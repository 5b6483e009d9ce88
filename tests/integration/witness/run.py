"""Programs without a changed line, observed from outside: their steps, what a stopped one and a busy one look like, and that the witness harms none.

LOCKSTEP_LONG=1 adds an hour in which nothing is wrong.
"""
import contextlib
import fcntl
import functools
import json
import mmap
import os
import pathlib
import select
import signal
import struct
import subprocess
import sys
import time
import types
import venv

import pytest

import nccl_ras
import torch_python
from build_folder import BIN
from cases import LIMIT, at_once, expect
from local_run import Run, logged
from program_run import ProgramRun, metric

HERE = pathlib.Path(__file__).resolve().parent
TRAIN = HERE / "train.py"
LONG = 100_000  # steps: it is stopped before
STALL = 13  # longer than the least bound of a step, 10 s, and what it takes to ask


def train(folder, steps, *pauses, nproc=1, environment=None):
    return ProgramRun(folder, torch_python.python(), TRAIN, folder, steps, *pauses, nproc=nproc, environment=environment)


def train_as_job(folder, steps, *pauses, **sections):
    """The same with two ranks by a manifest with these sections."""
    return run_as_job(folder, [torch_python.python(), TRAIN, folder, steps, *pauses], **sections)


def run_as_job(folder, command, **sections):
    spec = {"nprocPerNode": 2, "rendezvous": {"heartbeatIntervalSeconds": 1}, **sections,
            "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "none", "command": list(map(str, command))}]}}}}
    path = pathlib.Path(folder, "job.json")
    path.write_text(json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "seen"}, "spec": spec}))
    return Run(folder, path)


def steps_of(folder, rank, in_round):
    path = pathlib.Path(folder, f"steps-{rank}")
    lines = [line.split() for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []
    return [int(step) for number, step, _ in lines if number == str(in_round)]


def until_step(run, folder, step, rank=0, in_round=1):
    run.until(f"step {step} of rank {rank} in round {in_round}", lambda: step in steps_of(folder, rank, in_round))


def test_its_steps_and_phases_are_seen(folder):
    with train(folder, LONG, nproc=2) as run:
        until_step(run, folder, 50)
        run.until("50 steps in the metrics", lambda: (metric(folder, "lockstep_train_step") or 0) >= 50)
        run.until("a line with the step", lambda: "\nstep " in run.output())
        for phase in ("data", "forward", "backward_reduce", "optimizer", "checkpoint"):
            expect(metric(folder, "lockstep_train_phase_seconds_total", f'phase="{phase}"') > 0, f"no seconds of phase {phase}")
        expect(metric(folder, "lockstep_train_loss") is None, "a loss that nobody has reported")


def test_a_restart_continues_the_count_of_its_checkpoint(folder):
    with train(folder, LONG, nproc=2) as run:
        until_step(run, folder, 45)
        os.kill(run.programs()[1], signal.SIGKILL)
        until_step(run, folder, 60, in_round=2)
        first = min(steps_of(folder, 0, 2))
        expect(first % 20 == 1 and first > 20, f"the program continued at step {first}")
        run.until("step 60 in the metrics", lambda: (metric(folder, "lockstep_train_step") or 0) >= 60)
        counted = metric(folder, "lockstep_train_step")
        taken = max(max(steps_of(folder, rank, 2)) for rank in range(2))
        expect(counted <= taken + 1, f"step {counted} was reported when {taken} were taken")


def test_a_stopped_rank_is_found_and_restarted_with_what_nccl_knows_of_it(folder):
    programs = []
    with (nccl_ras.serve(lambda: nccl_ras.answer(programs, [31, 30], size=2)) as address,
          train(folder, LONG, nproc=2, environment={"NCCL_RAS_ADDR": address}) as run):
        until_step(run, folder, 30)
        programs[:] = run.programs()
        stopped = programs[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            until_step(run, folder, 60, in_round=2)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGKILL)
        hangs = logged(folder, "rank hangs")
        expect(len(hangs) == 1 and hangs[0]["local_rank"] == 1 and hangs[0]["why"] == "does not answer", f"{hangs}")
        found = "communicator 0xae94423cfbb2ef4a (2 ranks): rank 1 has not entered AllReduce 31, rank 0 has"
        views = [record["nccl"] for record in logged(folder, "NCCL's view of the hang")]
        expect(views == [found], f"{views}")
        left = [record["reason"] for record in logged(folder, "leaving the round") if "hangs" in record["reason"]]
        expect(len(left) == 1 and f"; by NCCL: {found}" in left[0], f"{left}")


def test_a_long_pause_is_no_hang(folder, subtests):
    at_once(subtests, {where: functools.partial(expect_no_hang, f"{folder}/{where}", where) for where in ("evaluation", "loader", "save", "elsewhere")})


def expect_no_hang(folder, where):
    with train(folder, 60, f"{where}:{STALL}", nproc=2) as run:
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    expect(not logged(folder, "rank hangs"), "it was taken for a hang")
    expect(len(steps_of(folder, 0, 1)) == 60, "not all steps were taken in the first round")


@pytest.mark.skipif(os.environ.get("LOCKSTEP_LONG") != "1", reason="LOCKSTEP_LONG=1 runs it")
def test_an_hour_of_long_pauses_has_no_false_alarm(folder):
    pauses = ("compile:180", "evaluation:240:200", "save:120:200", "loader:30:200", "elsewhere:60:200")
    steps = 1600  # eight times all of them
    with train_as_job(folder, steps, *pauses, healthPolicy={"straggler": {"action": "Restart"}}) as run:
        code = run.finish(limit=2 * 3600)
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    expect(not logged(folder, "rank hangs"), f"{logged(folder, 'rank hangs')}")
    expect("is a straggler" not in run.output(), run.output()[-4000:])
    expect([len(steps_of(folder, rank, 1)) for rank in range(2)] == [steps, steps], "not all steps were taken in the first round")


def test_a_job_can_bound_its_steps(folder):
    with train_as_job(folder, LONG, "elsewhere:100000", healthPolicy={"stepTimeoutSeconds": 3, "onHang": "Report"}) as run:
        run.until("the hang of both ranks", lambda: {record["local_rank"] for record in logged(folder, "rank hangs")} == {0, 1})
    hangs = logged(folder, "rank hangs")
    expect(all(hang["bound_seconds"] == 3 and hang["why"] == "does not wait for its peers" for hang in hangs), f"{hangs}")


def test_a_straggler_is_restarted(folder):
    with train_as_job(folder, LONG, "rank-1:0.2", healthPolicy={"straggler": {"windowSteps": 16, "action": "Restart"}}) as run:
        run.until("a step of round 2", lambda: steps_of(folder, 0, in_round=2))
    left = [record["reason"] for record in logged(folder, "leaving the round")]
    expect(len(left) == 1 and "rank process 1 " in left[0] and "is a straggler" in left[0], f"{left}")


def test_its_newest_checkpoint_is_known(folder):
    with train_as_job(folder, LONG, observability={"checkpointFolder": folder}) as run:
        run.until("the checkpoint", lambda: f"checkpoint: file://{folder}/checkpoint.pt" in run.output())
        first = metric(folder, "lockstep_checkpoint_last_success_timestamp_seconds")
        expect(abs(first - os.stat(f"{folder}/checkpoint.pt").st_mtime) < LIMIT, f"{first}")
        run.until("a newer one", lambda: metric(folder, "lockstep_checkpoint_last_success_timestamp_seconds") > first)
        expect(metric(folder, "lockstep_checkpoint_step") is None, "a step that the name does not have")


FIRST_READ = 1 << 17  # bytes; the kernel asks for at least 8192


@contextlib.contextmanager
def hanging_file_system(path):
    """Mounts a FUSE file system that answers nothing; returns a function that says whether anybody has asked it for something."""
    os.mkdir(path)
    device = os.open("/dev/fuse", os.O_RDWR)
    try:
        subprocess.run(["mount", "-i", "-t", "fuse", "-o", f"fd={device},rootmode=40000,user_id=0,group_id=0", "hangs", path], check=True, pass_fds=[device])
        request, = struct.unpack_from("=Q", os.read(device, FIRST_READ), 8)  # FUSE_INIT; without an answer the kernel keeps the next ones to itself
        os.write(device, struct.pack("=IiQ IIIIHHIIHHI7I", 80, 0, request, 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0, *[0] * 7))
        yield lambda: bool(select.select([device], [], [], 0)[0])
    finally:
        os.close(device)  # all who wait get an error
        subprocess.run(["umount", path], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="to mount a file system needs root and FUSE")
def test_a_file_system_that_hangs_delays_nothing_but_its_checkpoints(folder):
    checkpoints = f"{folder}/hangs"
    with hanging_file_system(checkpoints) as is_asked, train_as_job(folder, LONG, observability={"checkpointFolder": checkpoints}) as run:
        run.until("a look into the folder", is_asked)
        until_step(run, folder, 30)
        run.until("30 steps in the metrics", lambda: (metric(folder, "lockstep_train_step") or 0) >= 30)
        os.kill(run.programs()[0], signal.SIGKILL)  # of rank 0, which looks
        run.until("steps of the next round", lambda: steps_of(folder, 0, 2))
        run.process.send_signal(signal.SIGTERM)
        code = run.finish()
        expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")


# The rank that hangs has not begun the sum that the other one has begun, and whose result it needs. The host of a GPU waits like this in loss.item().
WAITS_LATER = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for step in range(100000):
    (parameter ** 2).sum().backward()
    optimizer.step()
    while step == 20 and os.environ["RANK"] + os.environ["LOCKSTEP_ROUND"] == "11":
        time.sleep(1)
    work = dist.all_reduce(torch.ones(1), async_op=True)
    while not work.is_completed():
        time.sleep(0.01)
    if step == 30 and os.environ["LOCKSTEP_ROUND"] == "2":
        break
dist.destroy_process_group()
"""


def test_a_rank_that_waits_for_a_sum_outside_of_a_collective_is_not_blamed(folder):
    script = pathlib.Path(folder, "train.py")
    script.write_text(WAITS_LATER)
    with run_as_job(folder, [torch_python.python(), script], healthPolicy={"stepTimeoutSeconds": 3}) as run:
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    hangs = [(record["local_rank"], record["why"]) for record in logged(folder, "rank hangs")]
    expect(hangs == [(1, "does not wait for its peers")], f"{hangs}")


class Words:
    """Those of a page, by the names that lockstep_witness has for them."""

    def __init__(self, module, page):
        self._module, self._words = module, memoryview(page).cast("q")
        self._words[module.MAGIC] = module.MAGIC_VALUE

    def __getitem__(self, name):
        return self._words[getattr(self._module, name)]

    def __str__(self):
        return str(list(self._words[:8]))


def witness_of_a_page(monkeypatch, folder):
    """A witness in this process, the words of its page, and the path of that."""
    monkeypatch.syspath_prepend(HERE.parents[2] / "runtime/witness/python")
    import lockstep_witness
    path = pathlib.Path(folder, "page")
    path.write_bytes(bytes(lockstep_witness.PAGE_BYTES))
    with open(path, "r+b") as file:
        page = mmap.mmap(file.fileno(), lockstep_witness.PAGE_BYTES)
    words = Words(lockstep_witness, page)
    return lockstep_witness.Witness(page, str(path), time.monotonic_ns), words, path


@pytest.mark.parametrize("device, world, may_wait", [("cuda", 2, 1), ("cuda", 1, 0), ("cpu", 2, 0)])
def test_a_program_on_a_device_may_wait_for_its_peers_anywhere(monkeypatch, folder, device, world, may_wait):
    distributed = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: world)
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    witness, words, _ = witness_of_a_page(monkeypatch, folder)
    parameter = types.SimpleNamespace(device=types.SimpleNamespace(type=device))
    witness.step(types.SimpleNamespace(state={}, param_groups=[{"params": [parameter]}]), (), {})
    expect((words["STEPS"], words["MAY_WAIT"]) == (1, may_wait), f"{words}")


def test_two_processes_never_claim_the_page_at_once(monkeypatch, folder):
    witness, words, path = witness_of_a_page(monkeypatch, folder)
    optimizer = types.SimpleNamespace(state={}, param_groups=[])
    with open(path, "rb") as other:  # which is claiming it
        fcntl.flock(other, fcntl.LOCK_EX)
        witness.step(optimizer, (), {})
        expect((words["STEPS"], words["PID"]) == (0, 0), f"{words}")
    witness.step(optimizer, (), {})
    expect((words["STEPS"], words["PID"]) == (1, os.getpid()), f"{words}")


# Each case calls train(), in as many processes as it likes.
PROCESSES = """
import os, subprocess, sys, time
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

FOLDER = os.environ["FOLDER"]

def train(index, steps, processes=1, workers=0, method=None):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for number in DataLoader(range(steps), num_workers=workers, multiprocessing_context=method):
        (parameter * number).sum().backward()
        optimizer.step()
    open(f"{FOLDER}/trained-{index}", "w").close()
    while not all(os.path.exists(f"{FOLDER}/trained-{other}") for other in range(processes)):
        time.sleep(0.02)

if __name__ == "__main__" and "child" in sys.argv:
    train(0, 7)
elif __name__ == "__main__":
    CASE
    open(f"{FOLDER}/done", "w").close()
    while not os.path.exists(f"{FOLDER}/end"):
        time.sleep(0.02)
"""


@pytest.mark.parametrize("case, steps", [
    ("mp.start_processes(train, args=(7, 2), nprocs=2, start_method='fork')", [7]),
    ("mp.spawn(train, args=(7, 2), nprocs=2)", [7]),
    ("subprocess.run([sys.executable, __file__, 'child'], check=True)", [7]),
    ("train(0, 5); mp.start_processes(train, args=(50,), nprocs=2, start_method='fork')", [5]),
    ("train(0, 5); mp.spawn(train, args=(50,), nprocs=2)", [5]),
    ("train(0, 9, workers=2, method='fork')", [9]),
    ("train(0, 9, workers=2, method='spawn')", [9]),
    ("[mp.spawn(train, args=(4,)) for _ in range(3)]", [12]),
    ("[train(0, 20) for _ in range(3)]", [58, 59, 60]),  # where one optimizer follows another, the first step may be taken for a part of the last one
], ids=["forks what trains", "spawns what trains", "starts a process that trains", "trains and forks", "trains and spawns", "forks loaders", "spawns loaders",
        "spawns one after the other", "trains one model after the other"])
def test_the_steps_of_one_process_count(folder, case, steps):
    script = pathlib.Path(folder, "train.py")
    script.write_text(PROCESSES.replace("CASE", case))
    with ProgramRun(folder, torch_python.python(), script, environment={"FOLDER": str(folder)}) as run:
        run.until("the end of all steps", lambda: os.path.exists(f"{folder}/done"))
        run.until("the steps in the metrics", lambda: (metric(folder, "lockstep_train_step") or 0) >= steps[0])
        pathlib.Path(folder, "end").touch()
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
        expect(run.newest_step() in steps, f"{run.newest_step()} steps were seen")


def run_python(folder, code, *options, python=None, **environment):
    """What a program under the witness writes, by `lockstep run`."""
    script = pathlib.Path(folder, "program.py")
    script.write_text(code)
    done = subprocess.run([f"{BIN}/lockstep", "run", "--nproc", "1", "--no-prefix", "--folder", f"{folder}/run", "--", str(python or sys.executable),
                           *options, str(script)], capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **environment})
    expect(done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def test_a_job_can_turn_it_off(folder):
    job = pathlib.Path(folder, "job.yaml")
    job.write_text("""
apiVersion: lockstep.dev/v1alpha1
kind: DistributedTrainingJob
metadata: {name: unseen}
spec:
  observability: {instrumentation: None}
  worker: {template: {spec: {containers: [{name: trainer, image: none, command: [python3, -c, "import os, sys; print('SEEN', 'lockstep_witness' in sys.modules, 'KUBEFLOW_TRAINER_SERVER_URL' in os.environ)"]}]}}}
""")
    done = subprocess.run([f"{BIN}/lockstep", "run", str(job), "--folder", f"{folder}/run"], capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == 0 and "SEEN False False" in done.stdout, f"{done}")


def test_the_programs_path_is_its_own(folder):
    code = "import sys; print('PATH', [entry for entry in sys.path if '/fd/' in entry], 'torch' in sys.modules)"
    expect("PATH [] False" in run_python(folder, code), "the witness is on the program's path, or imports PyTorch")


def test_calls_the_sitecustomize_that_was_there(folder):
    own = pathlib.Path(folder, "own")
    own.mkdir()
    own.joinpath("sitecustomize.py").write_text("import builtins; builtins.was_called = True\n")
    code = "import lockstep_witness, sitecustomize, builtins; print('OWN', builtins.was_called, sitecustomize.__file__)"
    expect(f"OWN True {own}/sitecustomize.py" in run_python(folder, code, PYTHONPATH=str(own)), "its own sitecustomize was not called")


@pytest.mark.parametrize("code", [
    "import os; os.environ.clear(); import subprocess; subprocess.run(['/bin/true'], check=True)",
    "import sys; sys.path[:] = [p for p in sys.path if 'python' in p]; sys.meta_path[:] = sys.meta_path[1:]; import json",
    "import os; pid = os.fork(); os._exit(0) if pid == 0 else os.waitpid(pid, 0)",
    "raise SystemExit(0)",
    "for i in range(100): print('x' * (1 << 20), end='' if i % 9 else '\\n')",
], ids=["clears the environment", "changes the paths", "forks", "ends at once", "prints megabytes"])
def test_a_program_that_does_as_it_likes_runs(folder, code):
    run_python(folder, code)


def test_an_interpreter_of_a_virtual_environment_is_observed(folder):
    venv.create(f"{folder}/environment", symlinks=True)
    code = "import sys; print('IN', sys.prefix, 'lockstep_witness' in sys.modules)"
    expect(f"IN {folder}/environment True" in run_python(folder, code, python=f"{folder}/environment/bin/python"), "it was not observed")


@pytest.mark.parametrize("option", ["-I", "-S", "-E"])
def test_an_interpreter_that_ignores_the_witness_runs(folder, option):
    expect("False" in run_python(folder, "import sys; print('lockstep_witness' in sys.modules)", option) or option == "-S", "it was observed")


STEPS = """
import torch
parameter = torch.nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(5):
    (parameter ** 2).sum().backward()
    optimizer.step()
print("DONE")
"""


def test_a_witness_that_fails_harms_nothing(folder):
    fails = "import lockstep_witness; lockstep_witness.Witness._claim = lambda *_: 1 / 0\n"
    expect("DONE" in run_python(folder, fails + STEPS, python=torch_python.python()), "the program did not end well")
    expect([record["reason"] for record in logged(folder, "the program is no longer observed")] == ["ZeroDivisionError: division by zero"], "not said once")


def test_a_page_that_is_none_is_left_alone(folder):
    text = pathlib.Path(folder, "text")
    text.write_text("x" * 5000)
    for page in (text, "/nonexistent"):
        out = subprocess.run([torch_python.python(), "-c", STEPS], capture_output=True, text=True, timeout=LIMIT,
                             env={**os.environ, "LOCKSTEP_WITNESS_PAGE": str(page), "PYTHONPATH": str(HERE.parents[2] / "runtime/witness/python")})
        expect(out.returncode == 0 and "DONE" in out.stdout and out.stderr == "", f"{page}: {out}")
    expect(text.read_text() == "x" * 5000, "it was written to")


def test_compiled_and_traced_code_has_no_hooks_in_it(folder):
    code = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
@torch.compile(backend="eager", fullgraph=True)
def forward(x):
    return model(x).sum()
for _ in range(3):
    forward(torch.ones(1, 2)).backward()
    optimizer.step()
torch.export.export(model, (torch.ones(1, 2),))
print("DONE")
"""
    expect("DONE" in run_python(folder, code, python=torch_python.python()), "it did not end well")
