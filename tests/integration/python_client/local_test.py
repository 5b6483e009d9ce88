"""`lockstep.Client.local()` with a real `lockstep run`: a function of this file trains on two ranks."""
import json
import os
import pathlib
import re
import subprocess
import sys

import torch_python
from build_folder import BIN
from cases import ENDS_WITH_US, LIMIT, expect

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "runtime/python"), "OMP_NUM_THREADS": "1", "PATH": f"{BIN}:{os.environ['PATH']}"}


def submits(folder, what, **more):
    """What notebook.py says: the interpreter has PyTorch, for the jobs, and no package `kubernetes`."""
    done = subprocess.run([*ENDS_WITH_US, torch_python.python(), HERE / "notebook.py", what], cwd=folder, capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, **ENVIRONMENT, **more})
    expect(done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def test_a_function_trains_on_two_ranks(folder):
    found = submits(folder, "trains")
    for rank, lines in ((1, found["followed"]), (0, found["read"])):
        trained = [line.partition("] ")[2] for line in lines if "has trained" in line]
        expect(set(trained) == {f"rank {rank} of 2 has trained"}, f"rank {rank}: {lines}")
    expect((found["status"]["state"], found["metrics"]["worldSize"]) == ("Complete", 2) and found["metrics"]["step"] >= 20, f"{found}")


def test_a_failure_is_raised_and_its_error_is_in_the_log(folder):
    found = submits(folder, "fails")
    expect("exited with code 1" in found["error"] and "maxRestarts" in found["error"], found["error"])
    expect(any("ValueError: no data" in line for line in found["read"]), f"{found['read']}")


def test_suspend_and_resume(folder):
    found = submits(folder, "suspends")
    expect(found["states"] == ["Suspended", "Complete"], f"{found}")
    expect(not pathlib.Path(folder, "run/again").exists(), "its folder remains after delete")


def test_no_job_outlives_the_notebook(folder):
    pid = submits(folder, "leaves")["pid"]
    expect(not pathlib.Path(f"/proc/{pid}").exists(), f"process {pid} runs")


def test_mistakes_are_named(folder):
    for what, parts in submits(folder, "mistakes").items():
        expect(parts["wanted"] in parts["said"] and "\n" not in parts["said"], f"{what}: {parts}")


def test_the_example_of_the_documents(folder):
    """docs/how-to/notebooks.md, on this machine."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/how-to/notebooks.md").read_text(), re.DOTALL)[1]
    cluster = 'lockstep.Client(namespace="research")'
    expect(code.count(cluster) == 1, code)
    pathlib.Path(folder, "example.py").write_text(code.replace(cluster, "lockstep.Client.local()"))
    done = subprocess.run([*ENDS_WITH_US, torch_python.python(), "example.py"], cwd=folder, capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, **ENVIRONMENT})
    expect(done.returncode == 0 and re.search(r"\[rank 1 round \d+\] rank 1: loss", done.stdout), f"{done.stdout}{done.stderr}")


def test_without_lockstep_on_path(folder):
    found = submits(folder, "absent", PATH="/usr/bin:/bin")
    expect("`lockstep` is not on PATH" in found["local"], f"{found}")
    expect("pip install 'lockstep[client]'" in found["cluster"], f"{found}")


def test_the_client_needs_no_pytorch():
    code = "import sys, lockstep; lockstep.Client; assert 'torch' not in sys.modules; print(sorted(dir(lockstep)) == sorted(lockstep.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **ENVIRONMENT})
    expect(done.returncode == 0 and done.stdout == "True\n", done.stderr)
