"""Interpreters that are parked for the next round: what starts in one cannot see it, and what must not be parked is not.

The programs take an optimizer step, and end when the test lets them, in the way that the case wants. The cases of DistributedDataParallel and of a DataLoader
use PyTorch; the others use a package `torch` of two functions, which are those that the witness needs, because PyTorch takes long to import.
"""
import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

import torch_python
from build_folder import BIN
from cases import LIMIT, at_once, expect
from local_run import logged
from program_run import ProgramRun

TRAIN = pathlib.Path(__file__).with_name("train.py")
LONG = 100_000  # steps: it is stopped before

STARTED_PARKED = "the program starts in the parked interpreter"
PARKED = "an interpreter is parked for the next round"

# site-packages/torch/optim/optimizer.py
OPTIMIZER = """
hooks = []
register_optimizer_step_post_hook = hooks.append

class Optimizer:
    state = {}
    def step(self):
        for hook in hooks:
            hook(self, (), {})
"""

# A module says in which round it was imported. That of a parked interpreter is the one in which it was started. A copy of the environment reads no variable.
SAYS_WHEN = """
import os
with open(f"{os.environ['FOLDER']}/{__name__}", "a") as rounds:
    print(dict(os.environ)["LOCKSTEP_ROUND"], file=rounds)
"""

FACTS = """
import json, os, signal, subprocess, sys, time
import installed
import own
os.environ["SETTING"] = "of the script"
import installed_later
import torch.optim.optimizer

FOLDER, ROUND = os.environ["FOLDER"], int(os.environ["LOCKSTEP_ROUND"])
OF_THE_ROUND = ("LOCKSTEP_ROUND", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "TORCHELASTIC_RESTART_COUNT", "LOCKSTEP_RANK_SOCKET", "LOCKSTEP_WITNESS_PAGE")

class Pickled:
    pass

def read(name):
    with open(f"/proc/self/{name}") as file:
        return file.read()

def facts():
    main = sys.modules["__main__"]
    return {
        "argv": sys.argv, "orig_argv": getattr(sys, "orig_argv", None), "path": sys.path, "flags": str(sys.flags), "warnings": sys.warnoptions,
        "main": [main.__name__, getattr(main, "__file__", None), getattr(main.__spec__, "name", None), type(main.__loader__).__name__,
                 main.__dict__ is globals(), sorted(vars(main)), Pickled.__module__],
        "environment": {name: value for name, value in os.environ.items() if name not in OF_THE_ROUND},
        "environment in bytes": dict(os.environb) == {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()},
        "cwd": os.getcwd(), "files": sorted(os.listdir("/proc/self/fd")), "comm": read("comm"), "cmdline": read("cmdline"), "oom": read("oom_score_adj"),
        "nice": os.getpriority(os.PRIO_PROCESS, 0), "leads its group": os.getpid() == os.getpgid(0),
        "signals": [str(signal.getsignal(number)) for number in range(1, 32)],
        "meta_path": [str(getattr(finder, "__name__", type(finder).__name__)) for finder in sys.meta_path],
        "streams": [sys.stdin.name, sys.stdout.name, sys.stdout.encoding, sys.stderr.line_buffering],
        "round of a child": subprocess.check_output(["sh", "-c", "echo $((LOCKSTEP_ROUND - %d)) $LOCKSTEP_PARKED" % ROUND], text=True),
    }

def main():
    with open(f"{FOLDER}/facts-{ROUND}", "w") as file:
        json.dump(facts(), file)
    torch.optim.optimizer.Optimizer().step()
    if ROUND == 1:
        while not os.path.exists(f"{FOLDER}/go-on"):
            time.sleep(0.02)
    if ROUND <= 2:
        print("words on stdout")  # which may be lost: the same in both interpreters
        print("words on stderr", file=sys.stderr)
        END

if __name__ == "__main__":
    main()
"""


def make_site(folder):
    """A site-packages with the little torch, and modules that say when they were imported."""
    site = pathlib.Path(folder, "site-packages")
    for package in ("torch", "torch/optim"):
        site.joinpath(package).mkdir(parents=True)
        site.joinpath(package, "__init__.py").touch()
    site.joinpath("torch/optim/optimizer.py").write_text(OPTIMIZER)
    for name in ("installed", "installed_later"):
        site.joinpath(f"{name}.py").write_text(SAYS_WHEN)
    pathlib.Path(folder, "own.py").write_text(SAYS_WHEN)
    return site


@pytest.fixture
def site(folder):
    return make_site(folder)


def program(folder, site, *command, **environment):
    return ProgramRun(folder, *command, environment={"FOLDER": str(folder), "PYTHONPATH": str(site), **environment})


def facts_of(folder, in_round):
    return json.loads(pathlib.Path(folder, f"facts-{in_round}").read_text())


def rounds_of(folder, module):
    return pathlib.Path(folder, module).read_text().split()


def said_in(run, folder, in_round):
    """The lines that the program of that round wrote to either stream, without addresses."""
    text = "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.log"))
    label = f"[rank 0 round {in_round}] "
    return sorted(re.sub("0x[0-9a-f]+", "0x", line[len(label):]) for line in text.splitlines() if line.startswith(label))


FORMS = ("script", "module", "options")
ENDS = {"exception": "raise ValueError('the end')", "exit code": "sys.exit(7)", "signal": "os.kill(os.getpid(), signal.SIGSEGV)", "at once": "os._exit(9)"}


def test_a_program_cannot_tell_where_it_started(folder, subtests):
    at_once(subtests, {f"{name}, {form}": functools.partial(expect_the_same_facts, f"{folder}/{name}-{form}", form, end)
                       for name, end in ENDS.items() for form in FORMS})


def expect_the_same_facts(folder, form, end):
    """In a parked interpreter as in one that was started for the program."""
    site = make_site(folder)
    text = FACTS.replace("END", end)
    if form == "module":
        package = site / "package"
        package.mkdir()
        package.joinpath("__init__.py").touch()
        package.joinpath("train.py").write_text(text)
        command = [sys.executable, "-m", "package.train", "--steps", "3"]
        site.joinpath("own.py").write_text(SAYS_WHEN)
    else:
        script = pathlib.Path(folder, "train.py")
        script.write_text(text)
        command = [sys.executable, *(["-u", "-X", "dev", "-W", "ignore"] if form == "options" else []), script, "--steps", "3"]
    with program(folder, site, *command) as run:
        run.until("a parked interpreter", lambda: logged(folder, PARKED))
        pathlib.Path(folder, "go-on").touch()
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    parked = logged(folder, STARTED_PARKED)
    expect(len(parked) == 1 and parked[0]["has_imported_all"], f"{parked}")
    first, second = facts_of(folder, 1), facts_of(folder, 2)
    expect(first == second, {name: (first[name], second[name]) for name in first if first[name] != second[name]})
    expect(said_in(run, folder, 1) == said_in(run, folder, 2) and said_in(run, folder, 1), f"{said_in(run, folder, 1)}\n{said_in(run, folder, 2)}")
    failed = [(record["exit_code"], record["reason"]) for record in logged(folder, "rank failed")]
    expect(len(failed) == 2 and failed[0] == failed[1], f"{failed}")
    expect(rounds_of(folder, "installed") == ["1", "1", "3"], f"the installed module: {rounds_of(folder, 'installed')}")
    expect(rounds_of(folder, "installed_later") == ["1", "2", "3"], "a module was parked that the script's own environment may change")
    expect(form == "module" or rounds_of(folder, "own") == ["1", "2", "3"], "a module of the script's own folder was parked")


STEP = "import torch.optim.optimizer\ntorch.optim.optimizer.Optimizer().step()\n"
UNTIL_IT_MAY_END = """
import os, sys, time
if os.environ["LOCKSTEP_ROUND"] == "1":
    while not os.path.exists(os.environ["FOLDER"] + "/go-on"):
        time.sleep(0.02)
    sys.exit(5)
"""
# True in the interpreter that is parked, and in no program.
IS_PARKED = "open('/proc/self/comm').read() == 'lockstep-parked\\n'"


ODD_MODULES = {
    "fails": (f"if {IS_PARKED}: raise ValueError('not now')", "a module is not parked", "odd: ValueError: not now", 1),
    "exits": (f"if {IS_PARKED}: raise SystemExit(3)", "a module is not parked", "odd: SystemExit: 3", 1),
    "starts a thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=(3600,), daemon=True).start()",
                        "not parked", "odd has started a thread", 0),
    "handles a signal": ("import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)", "not parked", "odd handles signals", 0),
    "opens a device": ("device = open('/dev/fuse' if __import__('os').path.exists('/dev/fuse') else '/dev/cpu_dma_latency')",
                       "not parked", "odd has opened /dev/", 0),
    "ends the process": (f"if {IS_PARKED}: __import__('os')._exit(4)", "not parked", "the interpreter ended with exit code 4", 0),
}


def test_a_module_that_is_not_to_be_parked(folder, subtests):
    at_once(subtests, {name: functools.partial(expect_not_parked, f"{folder}/{name}", *odd) for name, odd in ODD_MODULES.items()})


def expect_not_parked(folder, body, message, reason, used):
    """`used`: how often a program starts in a parked interpreter, with all modules but that one."""
    site = make_site(folder)
    site.joinpath("odd.py").write_text(body + "\n")
    script = pathlib.Path(folder, "train.py")
    script.write_text("import odd\n" + STEP + UNTIL_IT_MAY_END)
    with program(folder, site, sys.executable, script) as run:
        run.until(reason, lambda: [record for record in logged(folder, message) if record["reason"].startswith(reason)])
        if used:
            run.until("a parked interpreter", lambda: logged(folder, PARKED))
        pathlib.Path(folder, "go-on").touch()
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    expect(len(logged(folder, message)) == 1, f"not said once: {logged(folder, message)}")
    expect(len(logged(folder, STARTED_PARKED)) == used, f"{logged(folder, STARTED_PARKED)}")


def test_a_module_that_reads_a_variable_of_the_round_is_imported_in_the_round(folder, site):
    site.joinpath("odd.py").write_text("import os\nROUND = os.environ.get('LOCKSTEP_ROUND')\n")
    script = pathlib.Path(folder, "train.py")
    script.write_text("import os, installed, odd\nassert odd.ROUND == os.environ['LOCKSTEP_ROUND']\n" + STEP + UNTIL_IT_MAY_END)
    with program(folder, site, sys.executable, script) as run:
        run.until("a parked interpreter", lambda: logged(folder, PARKED))
        pathlib.Path(folder, "go-on").touch()
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    expect(rounds_of(folder, "installed") == ["1", "1", "2"], f"it did not start from nothing: {rounds_of(folder, 'installed')}")


def test_a_module_that_the_programs_folder_hides_is_not_parked(folder, site):
    site.joinpath("hidden.py").write_text("name = 'installed'\n")
    site.joinpath("imports_hidden.py").write_text("import hidden\n")
    pathlib.Path(folder, "hidden.py").write_text("name = 'own'\n")
    script = pathlib.Path(folder, "train.py")
    script.write_text("import imports_hidden, hidden\nassert hidden.name == 'own'\n" + STEP + UNTIL_IT_MAY_END)
    with program(folder, site, sys.executable, script) as run:
        run.until("the reason", lambda: logged(folder, "not parked"))
        pathlib.Path(folder, "go-on").touch()
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    expect([record["reason"] for record in logged(folder, "not parked")] == ["the program has another module hidden"], f"{logged(folder, 'not parked')}")


def test_a_program_below_another_is_not_parked(folder, site):
    """A shell may do anything before it starts Python, so it must not run a second time."""
    script = pathlib.Path(folder, "train.py")
    script.write_text("import installed\n" + STEP + UNTIL_IT_MAY_END)
    with program(folder, site, "sh", "-c", f"echo began >>{folder}/begun; {sys.executable} {script}; exit $?") as run:
        run.until("the first step", lambda: os.path.exists(f"{folder}/installed"))
        time.sleep(8)  # longer than it takes until a program is parked
        pathlib.Path(folder, "go-on").touch()
        expect(run.finish() == 0, run.output()[-4000:])
    expect(pathlib.Path(folder, "begun").read_text().split() == ["began", "began"], "the shell ran another time")
    expect(not logged(folder, PARKED), "it was parked")


def steps_of(folder, rank, in_round):
    path = pathlib.Path(folder, f"steps-{rank}")
    lines = [line.split() for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []
    return [int(step) for number, step, _ in lines if number == str(in_round)]


def test_all_ranks_of_an_unchanged_script_continue_in_parked_interpreters(folder):
    with ProgramRun(folder, torch_python.python(), TRAIN, folder, LONG, nproc=2) as run:
        for in_round in (1, 2):  # and it is parked again
            run.until("two parked interpreters", lambda: len(logged(folder, PARKED)) == 2 * in_round)
            os.kill(run.programs()[1], signal.SIGKILL)
            run.until("steps of the next round", lambda: all(len(steps_of(folder, rank, in_round + 1)) > 25 for rank in range(2)))
        expect(min(steps_of(folder, 0, 3)) > 20, "it began from nothing")
    parked = logged(folder, STARTED_PARKED)
    expect(len(parked) == 4 and all(record["has_imported_all"] for record in parked), f"{parked}")
    sizes = [record["resident_bytes"] for record in logged(folder, PARKED)]
    expect(all(100e6 < size < 4e9 for size in sizes), f"{sizes}")


def test_one_that_hangs_continues_in_a_parked_interpreter(folder):
    with ProgramRun(folder, torch_python.python(), TRAIN, folder, LONG, nproc=2) as run:
        run.until("two parked interpreters", lambda: len(logged(folder, PARKED)) == 2)
        stopped = run.programs()[1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            run.until("steps of the next round", lambda: all(steps_of(folder, rank, 2) for rank in range(2)))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGKILL)
    expect(len(logged(folder, "rank hangs")) == 1, "it was killed for another reason")
    expect(len(logged(folder, STARTED_PARKED)) == 2, "a rank began from nothing")


SPAWNS = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Points(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.ones(2) * i

if __name__ == "__main__":
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs in DataLoader(Points(), batch_size=4, num_workers=2, multiprocessing_context="spawn"):
        model(inputs).sum().backward()
        optimizer.step()
    while os.environ["LOCKSTEP_ROUND"] == "1" and not os.path.exists(os.environ["FOLDER"] + "/go-on"):
        time.sleep(0.02)
    sys.exit(5 if os.environ["LOCKSTEP_ROUND"] == "1" else 0)
"""


def test_spawned_workers_of_a_loader_find_the_script(folder):
    script = pathlib.Path(folder, "train.py")
    script.write_text(SPAWNS)
    with ProgramRun(folder, torch_python.python(), script, environment={"FOLDER": str(folder)}) as run:
        run.until("a parked interpreter", lambda: logged(folder, PARKED))
        pathlib.Path(folder, "go-on").touch()
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    expect(len(logged(folder, STARTED_PARKED)) == 1, f"{logged(folder, STARTED_PARKED)}")


def test_nothing_is_parked_where_the_job_turns_the_witness_off(folder, site):
    script = pathlib.Path(folder, "train.py")
    script.write_text(STEP + "import time; time.sleep(8)\n")  # longer than it takes until a program is parked
    job = pathlib.Path(folder, "job.yaml")
    job.write_text(f"""
apiVersion: lockstep.dev/v1alpha1
kind: DistributedTrainingJob
metadata: {{name: unseen}}
spec:
  observability: {{instrumentation: None}}
  worker: {{template: {{spec: {{containers: [{{name: trainer, image: none, command: ["{sys.executable}", "{script}"]}}]}}}}}}
""")
    done = subprocess.run([f"{BIN}/lockstep", "run", str(job), "--folder", f"{folder}/run"], capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, "FOLDER": str(folder), "PYTHONPATH": str(site)})
    expect(done.returncode == 0 and not logged(folder, PARKED), f"{done}")


def test_it_rests_after_its_own_work_not_after_that_of_others():
    """The rest before an import is a multiple of the processor time of the last one: on a busy machine parking would otherwise take minutes."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "runtime/witness/python"))
    import lockstep_parking
    ours, theirs = socket.socketpair()
    with ours, theirs:
        parking, rests = lockstep_parking.Parking(theirs.fileno(), None), []
        parking._rest = rests.append
        time.sleep(0.3)  # others have the processor
        parking.find_spec("module")
        used = time.process_time()
        while time.process_time() - used < 0.1:
            pass
        parking.find_spec("module")
    expect(rests[0] < 0.3, f"it rests {rests[0]} s after the others' work")
    expect(rests[1] >= 0.4, f"it rests {rests[1]} s after its own work")
