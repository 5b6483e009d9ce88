"""Jobs on this machine, by `lockstep run`. Their status has the fields of the resource as far as `lockstep run` shows them."""
from __future__ import annotations

import atexit
import contextlib
import dataclasses
import datetime
import json
import math
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing

from lockstep.client.backend import Changes, Say
from lockstep.client.manifest import Object, Options, manifest_of
from lockstep.client.program import Program
from lockstep.client.rank_lines import Place, may_be_of, newest_places
from lockstep.errors import LockstepError

_POLL_SECONDS = 0.2  # of a log that is followed
_LONGEST_WAIT = 3600.0  # of a condition, which takes no infinity
_END_SECONDS = 60.0  # to save and stop
_PREEMPTED = 143  # exit code after SIGTERM (docs/reference/environment.md)
# What `lockstep run` prints (runtime/launch/run/progress_lines.cc). A program of one rank could print the same, and then changes what is shown, no more.
_STEP = re.compile(r"step (\d+)(?:/(\d+))?(?:  epoch (\S+))?(?:  loss (\S+))?(?:  (\S+) samples/s)?$")
_ROUND = re.compile(r"round (\d+): (\d+) ranks?$")
_ROUND_ENDED = re.compile(r"round (\d+) ended: (.*)$")
_CHECKPOINT = re.compile(r"checkpoint(?: of step (\d+))?: (\S+)$")
_FAILED = "lockstep run: failed: "


class Local:
    def __init__(self, folder: pathlib.Path) -> None:
        found = shutil.which("lockstep")
        if found is None:
            raise LockstepError("the program `lockstep` is not on PATH: docs/tutorials/laptop.md says how to get it")
        self._lockstep, self._folder = found, folder.absolute()
        self._runs: dict[str, _Run] = {}

    def submit(self, name: str, program: Program, options: Options) -> None:
        script = self._new_folder(name) / program.file
        script.write_text(program.text)
        command = [sys.executable, str(script), *program.arguments]
        self._start(manifest_of(name, command, dataclasses.replace(options, image=options.image or "none")))

    def submit_manifest(self, manifest: Object) -> None:
        self._new_folder(manifest["metadata"]["name"])
        self._start(manifest)

    def get(self, name: str) -> Object:
        return self._run(name).job()

    def names(self) -> list[str]:
        return list(self._runs)

    def changes(self, name: str, deadline: float, say: Say = print) -> Changes:
        return self._run(name).changes(deadline)

    def logs(self, name: str, rank: int, follow: bool) -> typing.Iterator[str]:
        return self._run(name).logs(rank, follow)

    def set_suspend(self, name: str, suspend: bool) -> None:
        run = self._run(name)
        if run.has_ended():
            raise LockstepError(f"{name} has ended ({run.job()['status']['state']}): none of its processes runs")
        if suspend:
            run.suspend()
        else:
            run.start()

    def request_checkpoint(self, name: str) -> None:
        self._run(name).send(signal.SIGUSR1)

    def delete(self, name: str) -> None:
        self._run(name).end()
        del self._runs[name]
        shutil.rmtree(self._folder / name)

    def _run(self, name: str) -> _Run:
        if name not in self._runs:
            raise LockstepError(f"this client has not submitted a job {name}")
        return self._runs[name]

    def _new_folder(self, name: str) -> pathlib.Path:
        if name in self._runs:
            raise LockstepError(f"there is a job {name} already: choose another name, or delete it first")
        folder = self._folder / name
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            raise LockstepError(f"{folder} exists already: choose another name, or remove the folder") from None
        return folder

    def _start(self, manifest: Object) -> None:
        name = manifest["metadata"]["name"]
        folder = self._folder / name
        path = folder / "manifest.json"
        path.write_text(json.dumps(manifest, indent=2))
        checked = subprocess.run([self._lockstep, "validate", str(path)], capture_output=True, text=True)
        if checked.returncode != 0:
            shutil.rmtree(folder)
            raise LockstepError(checked.stderr.strip() or checked.stdout.strip())
        self._runs[name] = _Run(manifest, folder, [self._lockstep, "run", str(path), "--folder", str(folder)])


class _Run:
    """One `lockstep run`, started again by `start` after it was suspended."""

    def __init__(self, manifest: Object, folder: pathlib.Path, command: list[str]) -> None:
        self._manifest, self._folder, self._command = manifest, folder, command
        self._name: str = manifest["metadata"]["name"]
        self._changed = threading.Condition()
        self._version = 0
        self._status: Object = {}
        self._failure = ""
        self._is_suspending = False
        self._process: subprocess.Popen[str] | None = None
        atexit.register(self.end)
        self.start()

    def job(self) -> Object:
        with self._changed:
            return {**self._manifest, "status": json.loads(json.dumps(self._status))}

    def has_ended(self) -> bool:
        return bool(self.job()["status"].get("conditions"))

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        for log in self._folder.glob("*.log"):  # rounds are numbered from 1 again
            log.unlink()
        self._is_suspending = False
        self._update(state="Starting", rendezvous={})
        # In a session of its own: Ctrl-C in a terminal interrupts what waits for the job, not the job.
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                         errors="replace", start_new_session=True)
        threading.Thread(target=self._read, args=(self._process,), name=f"lockstep-run-{self._name}", daemon=True).start()

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def suspend(self) -> None:
        self._is_suspending = True
        self.send(signal.SIGTERM)

    def end(self) -> None:
        self.suspend()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
            self.send(signal.SIGKILL)
            self._process.wait()
        atexit.unregister(self.end)

    def changes(self, deadline: float) -> Changes:
        seen = -1
        while True:
            with self._changed:
                while self._version == seen:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise TimeoutError(f"{self._name} has not ended in time; it continues")
                    self._changed.wait(min(left, _LONGEST_WAIT))
                seen = self._version
            yield self.job()

    def logs(self, rank: int, follow: bool) -> typing.Iterator[str]:
        while True:
            is_over = self._is_over()
            found = self._find(rank)
            if found is not None:
                break
            if is_over or not follow:
                raise LockstepError(f"no worker of {self._name} has logged rank {rank} (it is {self.job()['status']['state']})")
            time.sleep(_POLL_SECONDS)
        path, place = found
        with path.open(errors="replace") as log:
            rest = ""
            while True:
                is_over = self._is_over()  # before the read, so that nothing is left behind
                rest += log.read()
                *lines, rest = rest.split("\n")
                yield from (line for line in lines if may_be_of(line, place))
                if is_over or not follow:
                    return
                time.sleep(_POLL_SECONDS)

    def _is_over(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _find(self, rank: int) -> tuple[pathlib.Path, Place] | None:
        best: tuple[pathlib.Path, Place] | None = None
        for path in sorted(self._folder.glob("*.log")):
            place = newest_places(path.read_text(errors="replace").splitlines()).get(rank)
            if place is not None and (best is None or place.round > best[1].round):
                best = path, place
        return best

    def _update(self, **fields: typing.Any) -> None:
        with self._changed:
            self._status.update(fields)
            self._version += 1
            self._changed.notify_all()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._take(line.rstrip("\n"))
        code = process.wait()
        if code == 0:
            self._end("Complete", "TrainingDone", "")
        elif code == _PREEMPTED and self._is_suspending:
            self._update(state="Suspended")
        else:
            self._end("Failed", "ExitCode", self._failure or f"lockstep run ended with code {code}")

    def _end(self, state: str, reason: str, message: str) -> None:
        self._update(state=state, conditions=[{"type": state, "status": "True", "reason": reason, "message": message}])

    def _take(self, line: str) -> None:
        if line.startswith(_FAILED):
            self._failure = line[len(_FAILED):]
        elif found := _STEP.match(line):
            numbers = zip(("step", "totalSteps", "epoch", "loss", "samplesPerSecond"), found.groups())
            self._update(progress={key: _number(text) for key, text in numbers if text is not None})
        elif found := _ROUND.match(line):
            self._update(state="Running", rendezvous={"round": int(found[1]), "worldSize": int(found[2])})
        elif _ROUND_ENDED.match(line):
            self._update(state="Restarting")
        elif found := _CHECKPOINT.match(line):
            now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            step = {} if found[1] is None else {"step": int(found[1])}
            self._update(checkpoint={**step, "time": now, "uri": found[2]})


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return int(number) if number.is_integer() else number
