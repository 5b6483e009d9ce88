"""Each version of Python that the machine has, from the distribution or pyenv: the witness counts steps in it and parks it, and writes nothing into the output.

The programs need no PyTorch (parking.py).
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from build_folder import BIN
from cases import LIMIT, expect
from local_run import logged
from parking import FACTS, PARKED, SAYS_WHEN, STARTED_PARKED, facts_of, program, rounds_of, site  # noqa: F401
from program_run import metric

OLDEST_WITH_PYTORCH = (3, 9)
OF_A_VERSION = re.compile(r"python\d+\.\d+")


def interpreters():
    """The interpreter of each version, such as (3, 11); the running one is among them."""
    folders = [pathlib.Path("/usr/bin"), *pathlib.Path.home().glob(".pyenv/versions/*/bin")]
    found = {sys.version_info[:2]: sys.executable}
    for path in sorted(path for folder in folders for path in folder.glob("python*") if OF_A_VERSION.fullmatch(path.name)):
        found.setdefault(tuple(map(int, path.name[len("python"):].split("."))), str(path))
    return dict(sorted(found.items()))


INTERPRETERS = interpreters()

STEPS = 9
# In the second round.
TAKES_STEPS = f"""optimizer = torch.optim.optimizer.Optimizer()
        for _ in range({STEPS}):
            optimizer.step()
        while not os.path.exists(f"{{FOLDER}}/end"):
            time.sleep(0.02)
"""


def kill_and_continue(runs):
    """Side by side, because each waits until an interpreter is parked."""
    for folder, run in runs.items():
        run.until("the step in the metrics", lambda: metric(folder, "lockstep_train_step"))
        run.until("a parked interpreter", lambda: logged(folder, PARKED))
        os.kill(run.programs()[0], signal.SIGKILL)
    for folder, run in runs.items():
        run.until("the steps of the next round in the metrics", lambda: (metric(folder, "lockstep_train_step") or 0) >= STEPS)
        pathlib.Path(folder, "end").touch()
        code = run.finish()
        expect(code == 0, f"{folder}: exit code {code}\n{run.output()[-4000:]}")


def test_each_version_continues_in_a_parked_interpreter(folder, site):  # noqa: F811
    versions = {f"{folder}/{major}.{minor}": python for (major, minor), python in INTERPRETERS.items() if (major, minor) >= OLDEST_WITH_PYTORCH}
    print("Python", *(pathlib.Path(name).name for name in versions))
    with contextlib.ExitStack() as stack:
        runs = {}
        for name, python in versions.items():
            os.mkdir(name)
            pathlib.Path(name, "train.py").write_text(FACTS.replace("END", TAKES_STEPS))
            pathlib.Path(name, "own.py").write_text(SAYS_WHEN)
            runs[name] = stack.enter_context(program(name, site, python, f"{name}/train.py", PYTHONWARNINGS="error"))
        kill_and_continue(runs)
    for name in versions:
        parked = logged(name, STARTED_PARKED)
        expect(len(parked) == 1 and parked[0]["has_imported_all"], f"{name}: {parked}")
        first, second = facts_of(name, 1), facts_of(name, 2)
        expect(first == second, f"{name}: { {fact: (first[fact], second[fact]) for fact in first if first[fact] != second[fact]} }")
        expect(rounds_of(name, "installed")[:2] == ["1", "1"], f"{name}: the installed module: {rounds_of(name, 'installed')}")
        expect(rounds_of(name, "own") == ["1", "2"], f"{name}: a module of the script's own folder was parked")


# Python 2 runs it, too. All ways of Python to start a process; several of them start another interpreter.
STARTS_PROCESSES = """
import multiprocessing, os, subprocess, sys, threading

def double(number):
    return 2 * number

def pools():
    methods = getattr(multiprocessing, "get_all_start_methods", lambda: [None])()
    return [multiprocessing.get_context(method).Pool(1) if method else multiprocessing.Pool(1) for method in methods]

if __name__ == "__main__":
    for pool in pools():
        assert pool.map(double, range(3)) == [0, 2, 4]
        pool.close()
        pool.join()
    subprocess.check_call([sys.executable, "-c", "import json"])
    thread = threading.Thread(target=double, args=(1,))
    thread.start()
    thread.join()
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        print("DONE")
"""


@pytest.mark.parametrize("python", INTERPRETERS.values(), ids=[f"{major}.{minor}" for major, minor in INTERPRETERS])
def test_a_program_without_pytorch_writes_what_it_writes_without_the_witness(folder, python):
    script = pathlib.Path(folder, "program.py")
    script.write_text(STARTS_PROCESSES)
    strict = {**os.environ, "PYTHONWARNINGS": "error"}
    alone = subprocess.run([python, "-bb", script], capture_output=True, text=True, timeout=LIMIT, env=strict)
    shell = f"exec {python} -bb {script} >{folder}/stdout 2>{folder}/stderr"
    done = subprocess.run([f"{BIN}/lockstep", "run", "--nproc", "1", "--folder", f"{folder}/run", "--", "sh", "-c", shell],
                          capture_output=True, text=True, timeout=LIMIT, env=strict)
    expect(done.returncode == alone.returncode == 0, f"{alone}\n{done}")
    written = tuple(pathlib.Path(folder, name).read_text() for name in ("stdout", "stderr"))
    expect(written == (alone.stdout, alone.stderr) and alone.stdout == "DONE\n", f"{written}\n{alone}")
