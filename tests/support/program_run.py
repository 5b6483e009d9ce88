"""A `lockstep run --nproc N -- COMMAND` of a program that knows nothing of Lockstep, for tests: its processes, and what is known of it."""
import os
import re
import subprocess
import urllib.request

from build_folder import BIN
from cases import ENDS_WITH_US, LIMIT
from local_run import Run, logged


class ProgramRun(Run):
    """`lockstep run --nproc N -- command`."""

    def __init__(self, folder, *command, nproc=1, environment=None):
        self.folder = folder
        self.ledger = f"{folder}/ledger"
        os.makedirs(self.ledger, exist_ok=True)
        self.log = open(f"{folder}/output.txt", "a+")
        self.process = subprocess.Popen(
            [*ENDS_WITH_US, f"{BIN}/lockstep", "run", "--nproc", str(nproc), "--folder", f"{folder}/run", "--", *map(str, command)],
            stdout=self.log, stderr=subprocess.STDOUT, env={**os.environ, "LOCKSTEP_SAMPLE_LEDGER": self.ledger, **(environment or {})})

    def newest_step(self):
        """According to `lockstep run`."""
        found = re.findall(r"^step (\d+)", self.output(), re.MULTILINE)
        return int(found[-1]) if found else 0


def metrics(folder):
    ports = [record["port"] for record in logged(folder, "serving metrics")]
    if not ports:
        return {}
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/metrics", timeout=LIMIT) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def metric(folder, name, *labels):
    found = [value for series, value in metrics(folder).items() if series.startswith(name + "{") and all(label in series for label in labels)]
    return max(found) if found else None
