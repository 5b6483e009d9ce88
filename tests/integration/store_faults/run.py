"""Checkpoints in a store that fails, while two ranks write them and an oracle reads past the faults: at every moment the newest complete
checkpoint is sound and no older than the one before. When the faults are over the job goes on from what is stored, to the bits of a
quiet run, and what they left behind is gone, unfinished multipart uploads as well.

LOCKSTEP_STORE_KILLS=200 makes test_killed_at_any_byte long; LOCKSTEP_STORE_SEED chooses other bytes and ranks.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess

import pytest

import checkpoints
import ledger
import s3_server
import toxics
from cases import expect
from http_proxy import Answers, At, Cut, HttpProxy, LosesTheAnswer, Request, Rule
from local_run import Run, logged, slow_manifest
from oracle import KEEP_LAST, Oracle, unfinished_uploads, unnamed

URI = "s3://bucket/jobs/one"
INTERVAL = 5
PAUSE = 150  # milliseconds of a step: a save is over before the next one begins
# 11.2 MB of parameters, which rank 0 stores, and as much of momentum, which rank 1 stores: above 10 MiB Arrow uploads in parts.
HIDDEN = (1400, 1200)
SHARD = 11_200_000
SAVE = 2 * SHARD
MORE_STEPS = 2 * INTERVAL  # of the run that goes on
CUTS = int(os.environ.get("LOCKSTEP_STORE_CUTS", 10))
KILLS = int(os.environ.get("LOCKSTEP_STORE_KILLS", 8))
SEED = int(os.environ.get("LOCKSTEP_STORE_SEED", 1))
CLONE_NEWNS = 0x20000  # of <sched.h>

MISSING = s3_server.missing() or toxics.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def job(folder, uri, steps=1_000_000, interval=INTERVAL, strategy="ddp", policy=None):
    return slow_manifest(folder, 2, PAUSE, HIDDEN, minimum=2, globalBatchSize=4, epochs=None, steps=steps, evaluation=None,
                         optimizer={"name": "sgd", "learningRate": 0.001, "momentum": 0.9}, strategy=strategy,
                         sections={"checkpoint": {"uri": uri, "intervalSteps": interval, "keepLast": KEEP_LAST},
                                   "failurePolicy": policy or {"maxRestarts": 100_000}})


class Trial:
    """A job under faults and the oracle of its checkpoints."""

    def __init__(self, folder, uri, through, directly, **of_job):
        self.folder, self.uri, self.through = folder, uri, through
        self.oracle = Oracle(uri, directly)
        self.run = Run(folder, job(folder, uri, **of_job), through, arguments=("--checkpoint-uri", uri))

    def __enter__(self):
        self.run.__enter__()
        self.oracle.__enter__()
        return self

    def __exit__(self, *error):
        self.oracle.__exit__()
        self.run.__exit__(*error)

    def failed_steps(self):
        """The steps whose saves failed, by the log. Each rank may report the same step."""
        lines = [line for log in pathlib.Path(self.folder, "run").glob("*.log") for line in log.read_text().split("\n")[:-1]]  # whole ones
        return {json.loads(line)["step"] for line in lines if '"checkpoint not stored"' in line}

    def failures(self):
        return len(self.failed_steps())

    def until_it_fails(self, fault=None, times=1, meanwhile=lambda: None):
        """`fault`: the rule of the proxy that must have been met as well; a rank may report an earlier fault late."""
        failed = self.failures() + times

        def look():
            meanwhile()
            return (fault is None or fault.hits) and self.failures() >= failed or self.oracle.problems
        self.run.until(f"{times} more saves that fail", look)
        self.oracle.judge()

    def until_it_saves(self):
        """Until a save that began after the last one that failed is complete; the oracle may see an older one late."""
        self.oracle.until_newer(max(self.oracle.newest, *self.failed_steps(), -1), self.run)

    def goes_on_to_the_bits_of_a_quiet_run(self):
        self.until_it_saves()
        self.run.process.send_signal(signal.SIGTERM)
        code = self.run.finish()
        expect(code == 143, f"exit code {code}\n{self.run.output()[-4000:]}")
        steps = self.newest() + MORE_STEPS
        finish(self.folder, job(self.folder, self.uri, steps), self.uri, self.through)
        self.oracle.finish()
        expect(self.oracle.newest == steps, f"the newest checkpoint is of step {self.oracle.newest}, not {steps}")
        quiet = f"{self.folder}/quiet"
        os.mkdir(quiet)
        place = f"file://{quiet}/checkpoints"
        finish(quiet, job(quiet, place, steps, interval=steps), place, {})
        return steps, checkpoints.digest_of_tensors(checkpoints.newest(f"{quiet}/checkpoints")[1])

    def newest(self):
        self.oracle.finish()
        return self.oracle.newest


def finish(folder, path, uri, environment):
    with Run(folder, path, environment, arguments=("--checkpoint-uri", uri)) as run:
        code = run.finish()
        expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")


def judge(trial, place, port=None):
    """The end of a case; `place` is the folder of the URI, `port` that of its S3 server."""
    steps, bits = trial.goes_on_to_the_bits_of_a_quiet_run()
    step, checkpoint = checkpoints.newest(place)
    expect((step, checkpoints.digest_of_tensors(checkpoint)) == (steps, bits), "the final weights differ from those of a quiet run")
    left = unnamed(place) + sorted(uploads_left(port) if port else [])
    expect(not left, f"left behind: {left}")
    print(f"     {steps} steps, {trial.failures()} saves failed, {trial.oracle.looks} looks", flush=True)


def environments(url, port):
    return s3_server.environment(url), s3_server.environment(f"http://127.0.0.1:{port}")


def uploads_left(port):
    return unfinished_uploads(f"http://127.0.0.1:{port}", s3_server.KEY, s3_server.SECRET)


def test_network_that_fails(folder):
    """toxiproxy: each connection ends after N bytes, is reset, slow, silent; nobody listens."""
    with s3_server.s3_server() as (bucket, port), toxics.toxiproxy(port) as proxy:
        with Trial(folder, URI, *environments(proxy.url, port)) as trial:
            trial.until_it_saves()
            for kind, attributes in (("limit_data", {"bytes": 0}), ("limit_data", {"bytes": 300}), ("limit_data", {"bytes": 5_000_000}),
                                     ("reset_peer", {"timeout": 20}), ("timeout", {"timeout": 200})):
                proxy.add(kind, **attributes)
                trial.until_it_fails()
                proxy.reset()
                trial.until_it_saves()
            proxy.add("limit_data", stream="downstream", bytes=40)  # of the answers
            trial.until_it_fails()
            proxy.reset()
            trial.until_it_saves()
            proxy.shut()
            trial.until_it_fails()
            proxy.reset()
            trial.until_it_saves()
            for kind, attributes in (("latency", {"latency": 50, "jitter": 50}), ("bandwidth", {"rate": 20_000}), ("slicer", {"average_size": 20_000})):
                proxy.add(kind, **attributes)  # slower, and no more
                trial.until_it_saves()
                proxy.reset()
            judge(trial, bucket / "jobs/one", port)


def test_cut_after_any_byte(folder):
    """The network is gone after N bytes of a save's uploads, for N over a whole save."""
    with s3_server.s3_server() as (bucket, port), HttpProxy(port) as proxy:
        with Trial(folder, URI, *environments(proxy.url, port)) as trial:
            for cut in range(CUTS):
                trial.until_it_saves()
                proxy.rule = Cut(1 + cut * SAVE // (CUTS - 1))
                trial.until_it_fails(proxy.rule)
                proxy.rule = Rule()
            judge(trial, bucket / "jobs/one", port)


def test_server_that_refuses(folder):
    """What it answers by mistake, when it is busy and when the credentials have expired, to each kind of request."""
    busy = lambda of, times=1 << 30: Answers("503 Slow Down", "SlowDown", of, times)
    broken = lambda of: Answers("500 Internal Server Error", "InternalError", of)
    with s3_server.s3_server() as (bucket, port), HttpProxy(port) as proxy:
        with Trial(folder, URI, *environments(proxy.url, port)) as trial:
            trial.until_it_saves()
            # A policy without the right: saves go on, and this is not asked again.
            proxy.rule = Answers("403 Forbidden", "AccessDenied", Request.lists_uploads)
            trial.until_it_saves()
            trial.until_it_saves()
            expect(proxy.rule.hits == 1, f"asked {proxy.rule.hits} times to list the uploads")
            for rule in (busy(Request.begins), broken(Request.is_part), Answers("200 OK", "InternalError", Request.completes),
                         LosesTheAnswer(Request.completes), broken(Request.is_manifest), LosesTheAnswer(Request.is_manifest),
                         Answers("400 Bad Request", "ExpiredToken"), Answers("403 Forbidden", "AccessDenied")):
                proxy.rule = rule
                trial.until_it_fails(rule)
                proxy.rule = Rule()
                trial.until_it_saves()
            # Few enough for the retries of one save.
            failed = trial.failures()
            conflict = Answers("409 Conflict", "OperationAborted", Request.is_manifest, 2)
            for rule in (busy(Request.is_part, 2), busy(Request.completes, 2), busy(Request.is_manifest, 2), conflict):
                proxy.rule = rule
                trial.until_it_saves()
                trial.until_it_saves()
                expect(proxy.rule.hits == 2, "nothing was refused")
            expect(trial.failures() == failed, "what a retry mends fails a save")
            judge(trial, bucket / "jobs/one", port)


def test_killed_at_any_byte(folder):
    """Ranks are killed when a random part of a save is uploaded: one of them, or both."""
    dice = random.Random(SEED)
    with s3_server.s3_server() as (bucket, port), HttpProxy(port) as proxy:
        with Trial(folder, URI, *environments(proxy.url, port)) as trial:
            for _ in range(KILLS):
                trial.until_it_saves()
                trial.run.until("two ranks", lambda: len(trial.run.ranks()) == 2)
                victims = dice.choice([[0], [1], [0, 1]])
                pids = [trial.run.ranks()[victim] for victim in victims]
                proxy.rule = At(dice.randrange(SAVE + 20_000), lambda pids=pids: kill(pids))
                trial.run.until("the kill", lambda: proxy.rule.hits)
                proxy.rule = Rule()
            judge(trial, bucket / "jobs/one", port)
        print(f"     seed {SEED}", flush=True)


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until_waiting(run, folder, waiting):
    run.until(f"a rank whose {waiting} waits", lambda: any(
        line["waiting"] == waiting for line in logged(folder, "the store does not answer")))


def test_away_while_ranks_die(folder):
    """The server is gone when a rank is killed: its new process receives the state from its peer. Then both are killed: they wait for the server."""
    with s3_server.s3_server() as (bucket, port), toxics.toxiproxy(port) as proxy:
        with Trial(folder, URI, *environments(proxy.url, port)) as trial:
            trial.until_it_saves()
            proxy.shut()
            for victims in ([0], [1]):
                before, _ = ledger.newest_round(trial.run.ledger)
                kill([trial.run.ranks()[victim] for victim in victims])
                trial.run.until_joined(2, before)
            kill(trial.run.ranks())
            until_waiting(trial.run, folder, "the state to begin from")
            proxy.reset()
            trial.run.until("the answer", lambda: logged(folder, "the store answers again"))
            judge(trial, bucket / "jobs/one", port)


@pytest.mark.parametrize("strategy", ["zero1", "fsdp"])
def test_away_while_a_divided_state_is_lost(folder, strategy):
    """A dead rank takes a part of the state with it: the server, which is gone, has it. Then it is gone at the end."""
    with s3_server.s3_server() as (bucket, port), toxics.toxiproxy(port) as proxy:
        with Trial(folder, URI, *environments(proxy.url, port), strategy=strategy, steps=200) as trial:
            trial.until_it_saves()
            proxy.shut()
            kill(trial.run.ranks()[:1])
            until_waiting(trial.run, folder, "the state to begin from")
            proxy.reset()
            trial.until_it_saves()
            proxy.shut()
            trial.run.quickly()
            until_waiting(trial.run, folder, "the last checkpoint")
            proxy.reset()
            code = trial.run.finish()
            expect(code == 0, f"exit code {code}\n{trial.run.output()[-4000:]}")
            step, _ = checkpoints.newest(bucket / "jobs/one")
            expect(step == 200, f"the newest checkpoint is of step {step}")


def test_away_for_good(folder):
    """The patience that the job names is at its end: it fails, and says so."""
    with s3_server.s3_server() as (_, port), toxics.toxiproxy(port) as proxy:
        proxy.shut()
        path = job(folder, URI, policy={"storePatienceSeconds": 1})
        with Run(folder, path, s3_server.environment(proxy.url), arguments=("--checkpoint-uri", URI)) as run:
            code = run.finish()
            expect(code == 4 and "spec.failurePolicy.storePatienceSeconds" in run.output(), f"exit code {code}\n{run.output()[-4000:]}")


@pytest.fixture
def own_mounts():
    """From here on, what this process mounts goes with it, even where it is killed."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0 or subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode != 0:
        pytest.skip("nothing may be mounted here")


@pytest.mark.usefixtures("own_mounts")
def test_full_disk(folder):
    """A disk that holds three checkpoints and a little more is filled by somebody else, so that one rank finds room and the other
    does not; then there is room again."""
    disk = pathlib.Path(folder, "disk")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SAVE * 32 // 10}", "none", disk], check=True)
    try:
        place = disk / "checkpoints"
        with Trial(folder, f"file://{place}", {}, {}) as trial:
            for _ in range(2):
                trial.until_it_saves()
            hog = disk / "of-somebody-else"
            for room in (SHARD * 3 // 2, SHARD // 2):
                trial.until_it_fails(times=4, meanwhile=lambda room=room: fill(hog, disk, room))
                trial.run.until("lockstep run says so", lambda: re.search(r"no checkpoint of step \d+: .*No space left", trial.run.output()))
                hog.unlink()
                trial.until_it_saves()
            judge(trial, place)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.usefixtures("own_mounts")
def test_full_disk_at_the_end(folder):
    """The last checkpoint of a job waits for room."""
    disk = pathlib.Path(folder, "disk")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SAVE * 2}", "none", disk], check=True)
    try:
        hog = disk / "of-somebody-else"
        fill(hog, disk, SHARD // 2)
        uri = f"file://{disk}/checkpoints"
        with Run(folder, job(folder, uri, steps=20, interval=1000), arguments=("--checkpoint-uri", uri)) as run:
            until_waiting(run, folder, "the last checkpoint")
            hog.unlink()
            code = run.finish()
            expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(hog, disk, room):
    """Writes a file until no more than `room` bytes are free."""
    with open(hog, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while (free := shutil.disk_usage(disk).free) > room:
            file.write(bytes(min(free - room, 1 << 20)))
