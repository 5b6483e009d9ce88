"""A `lockstep run` of a script that joins its job by the Python package, with one rank in each of its workers, or `nproc`; what becomes of it."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess

import ledger
import torch_python
from build_folder import BUILD
from cases import LIMIT, expect
from local_run import Run, by_parent, children

ENVIRONMENT = {"PYTHONPATH": str(BUILD / "python"), "OMP_NUM_THREADS": "1"}
RANKS = 3


class ScriptRun(Run):
    def __init__(self, folder, script, *arguments, environment=ENVIRONMENT, **job):
        super().__init__(folder, script_manifest(folder, script, *arguments, **job), environment)


def script_manifest(folder, script, *arguments, ranks=RANKS, minimum=1, nproc=1, sections=None):
    """The script gets the folder and the arguments. `sections`: more of the spec."""
    command = [str(torch_python.python()), str(script), str(folder), *map(str, arguments)]
    container = {"name": "trainer", "image": "none", "command": command}
    path = pathlib.Path(folder, "job.json")
    path.write_text(json.dumps({
        "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "package"},
        "spec": {"nprocPerNode": nproc, "worker": {"replicas": ranks, "template": {"spec": {"containers": [container]}}},
                 "elasticPolicy": {"minReplicas": minimum, "maxReplicas": ranks},
                 "failurePolicy": {"maxRestarts": 1000, "inPlaceLimit": 1000}, "rendezvous": {"heartbeatIntervalSeconds": 1}, **(sections or {})}}))
    return path


@contextlib.contextmanager
def slowly(folder):
    """For as long as something is done to the ranks."""
    path = pathlib.Path(folder, "slowly")
    path.touch()
    yield
    path.unlink()


@contextlib.contextmanager
def away(run, worker):
    """The processes of one of run.workers() are stopped, as where its machine does not run for a while."""
    among, pids = by_parent(), [worker]
    for pid in pids:
        pids += [child for child, _ in children(pid, among)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def training(run):
    """rank -> process id, of those that have finished steps in the newest round."""
    newest, _ = ledger.newest_round(run.ledger)
    files = ((path.stem.rsplit("-", 2), ledger.File(path).read()) for path in pathlib.Path(run.ledger).glob("*.jsonl"))
    return {int(rank): int(pid) for (_, pid, rank), records in files if any(r["event"] == "commit" and r["round"] == newest for r in records)}


def until_steps(run, more=5, after=0, ranks=RANKS):
    """All ranks train in a round after that one and have finished some steps there. Returns the round."""
    number = run.until_joined(ranks, after=after)
    begin = ledger.newest_commit(run.ledger)
    run.until_step(begin + more)
    return number


def repeated(folder):
    """Steps that were committed in more than one round."""
    rounds = {}
    for record in ledger.read(folder):
        if record["event"] == "commit":
            rounds.setdefault(record["step"], set()).add(record["round"])
    return sum(len(found) - 1 for found in rounds.values())


def run_python(folder, *arguments, environment=ENVIRONMENT):
    """In an interpreter that has PyTorch, started without Lockstep."""
    done = subprocess.run([torch_python.python(), *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, **environment})
    expect(done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}")


def run_parts(folder, file, environment=ENVIRONMENT):
    """The cases of a file of tests."""
    run_python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, environment=environment)


def alone(folder, script, *arguments, environment=ENVIRONMENT):
    """What one process comes to."""
    run_python(folder, script, folder, *arguments, environment=environment)
    return final(folder, 0)


def expect_exactly_once(run, samples, batch, epochs):
    """The job ends well, and each sample has counted once in each epoch."""
    code = run.finish()
    expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    problems = ledger.check_exactly_once(run.ledger, samples, batch, epochs)
    expect(not problems, "; ".join(problems))


def final(folder, rank):
    """What the script of the rank came to."""
    return json.loads(pathlib.Path(folder, f"final-{rank}.json").read_text())
