"""Programs that know nothing of Lockstep, in `lockstep run`: the environment they get, what becomes of them when one fails, and the
copy of `lockstep` that runs in images without its libraries.
"""
import contextlib
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import pytest

import ledger
import processes
import torch_python
from build_folder import BIN, BUILD
from cases import ENDS_WITH_US, LIMIT, expect
from local_run import Run, children, logged

FAKE_NVML = BUILD / "tests/support/libfake_nvml.so"
HERE = pathlib.Path(__file__).resolve().parent
SUMS = HERE / "sums.py"
JOINS = HERE / "joins.py"
DDP = HERE / "ddp.py"
LONG = 100_000  # steps: it is killed or stopped before
SHORT = 40


def manifest(folder, command, replicas=3, env=(), sections=None, nproc=1, gpus=0):
    spec = {"nprocPerNode": nproc,
            "worker": {"replicas": replicas, "template": {"spec": {"containers": [
                {"name": "trainer", "image": "none", "command": command[:1], "args": command[1:], "env": list(env),
                 **({"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {})}]}}},
            **(sections or {})}
    path = pathlib.Path(folder) / "job.json"
    path.write_text(json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
                                "metadata": {"name": "local"}, "spec": spec}))
    return path


def sums(folder, steps, mischief="", **options):
    return manifest(folder, ["python3", str(SUMS), f"{folder}/ledger", str(steps), mischief], **options)


def commits(run):
    return [r for r in ledger.read(run.ledger) if r["event"] == "commit"]


def cpu_seconds(pids):
    fields = [pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in fields) / os.sysconf("SC_CLK_TCK")


def until_step(run, step, in_round, ranks=3):
    run.until(f"step {step} of round {in_round}", lambda: len({
        r["rank"] for r in commits(run) if r["round"] == in_round and r["step"] >= step}) == ranks)


def variables(folder, restarts, rank):
    return json.loads(pathlib.Path(folder, "ledger", f"variables-{restarts}-{rank}.json").read_text())


def expect_complete(run):
    code = run.finish()
    expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}\n{logs(run)[-4000:]}")


def logs(run):
    folder = pathlib.Path(run.log.name).parent / "run"
    return "".join(path.read_text() for path in sorted(folder.glob("*.log")))


def test_completes_with_torchruns_environment(folder):
    env = [{"name": "WHO", "value": "world"}, {"name": "GREETING", "value": "hello $(WHO)"}]
    path = manifest(folder, ["python3", str(SUMS), f"{folder}/ledger", str(SHORT), "$(GREETING) $$(WHO)"], replicas=2, nproc=2, env=env)
    with Run(folder, path) as run:
        expect_complete(run)
    expect(len({(r["rank"], r["step"]) for r in commits(run)}) == 4 * SHORT, "not every rank made every step")
    seen = [variables(folder, 0, rank) for rank in range(4)]
    ports = {v["MASTER_PORT"] for v in seen}
    expect(len(ports) == 1 and 20_000 <= int(ports.pop()) < 30_000, f"{seen}")
    threads = max(1, (os.cpu_count() or 1) // 4)
    for rank, found in enumerate(seen):
        wanted = {"MASTER_ADDR": "127.0.0.1", "RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2,
                  "GROUP_RANK": rank // 2, "GROUP_WORLD_SIZE": 2, "NODE_RANK": rank // 2, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": 4,
                  "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_USE_AGENT_STORE": "False", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": 1,
                  "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads), "LOCKSTEP_ROUND": 1, "GREETING": "hello world",
                  "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{found['MASTER_PORT']}", "JAX_NUM_PROCESSES": 4, "JAX_PROCESS_ID": rank,
                  "JAX_LOCAL_DEVICE_IDS": rank % 2}
        wrong = {name: found[name] for name, value in wanted.items() if found[name] != str(value)}
        expect(not wrong, f"rank {rank}: {wrong}")
        expect(found["arguments"][2] == "hello world $(WHO)", f"{found['arguments']}")
    places = [json.loads(line) for line in logs(run).splitlines() if '"message":"rank placed"' in line]  # `kubectl lockstep` reads them
    expect(sorted((p["rank"], p["local_rank"], p["round"]) for p in places) == [(0, 0, 1), (1, 1, 1), (2, 0, 1), (3, 1, 1)], f"{places}")
    expect([v["hostfile"] for v in seen] == ["127.0.0.1 slots=4\n", None, None, None], "rank 0 alone has a hostfile, and each host is in it once")
    expect(len({v["TORCHELASTIC_RUN_ID"] for v in seen}) == 1, "the ranks have different run ids")


LINES = 200
# Longer than what a pipe takes in one piece.
WRITER = f"""
import os, sys
for line in range({LINES}):
    print("x" * 5000, os.environ["RANK"], line)
print("words of rank", os.environ["RANK"], *sys.argv[1:], file=sys.stderr)
"""


def shown(folder, *arguments, nproc=3):
    """What `lockstep run` of that program, without a manifest, writes: (lines of stdout, lines of stderr)."""
    script = pathlib.Path(folder, "Say_it.py")
    script.write_text(WRITER)
    done = subprocess.run([f"{BIN}/lockstep", "run", "--nproc", str(nproc), "--folder", f"{folder}/run", *arguments, "--", "python3",
                           str(script), "$(HOME)"], capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_runs_a_command_without_a_manifest_and_shows_what_its_ranks_write(folder):
    out, err = shown(folder)
    long = [line for line in out if "x" in line]
    whole = {f"[rank {rank}] {'x' * 5000} {rank} {line}" for rank in range(3) for line in range(LINES)}
    expect(len(long) == len(whole) and set(long) == whole, f"{len(long)} lines, of which {len(set(long) - whole)} are not whole")
    expect(sorted(line for line in err if "words" in line) == [f"[rank {rank}] words of rank {rank} $(HOME)" for rank in range(3)], f"{err}")
    expect(out[-1].startswith("complete after"), f"lines behind the last: {out[-3:]}")
    expect("[rank 1 round 1] words of rank 1" in pathlib.Path(folder, "run", "say-it-worker-0.log").read_text(), "the log lacks them")


def test_shows_what_a_python_program_printed_before_it_was_killed(folder):
    script = pathlib.Path(folder, "killed.py")
    script.write_text("import os, signal\nprint('alive in round', os.environ['LOCKSTEP_ROUND'])\n"
                      "os.environ['LOCKSTEP_ROUND'] == '3' or os.kill(os.getpid(), signal.SIGKILL)\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([f"{BIN}/lockstep", "run", "--nproc", "1", "--folder", f"{folder}/run", "--", "python3", str(script)], capture_output=True,
                          text=True, timeout=LIMIT, env=environment)
    expect([line for line in done.stdout.splitlines() if "alive" in line] == [f"alive in round {number}" for number in (1, 2, 3)], f"{done}")


def test_shows_a_progress_bar_by_lines(folder):
    script = pathlib.Path(folder, "bar.py")
    script.write_text("import sys\nfor part in range(101):\n    sys.stderr.write(f'\\rpart {part}')\n    sys.stderr.flush()\nsys.stderr.write('\\n')\n")
    done = subprocess.run([f"{BIN}/lockstep", "run", "--nproc", "1", "--folder", f"{folder}/run", "--", "python3", str(script)], capture_output=True,
                          timeout=LIMIT)
    parts = [line for line in done.stderr.split(b"\n") if b"part" in line]
    expect(len(parts) < 50 and (parts[0], parts[-1]) == (b"part 0", b"part 100"), f"{done}")


def test_a_line_of_torchrun_works_with_its_name_exchanged(folder):
    script = pathlib.Path(folder, "train.py")
    script.write_text("import os, sys\nprint('SAID', os.environ['RANK'], os.environ['WORLD_SIZE'], *sys.argv[1:])\n"
                      "sys.exit(3 if '--fail' in sys.argv else 0)\n")
    line = ["--standalone", "--nnodes=1", "--nproc_per_node", "2", "--max-restarts", "1", "--rdzv-backend", "c10d", "--log-dir", f"{folder}/run", str(script),
            "--epochs", "3", "--", "--nproc"]
    done = subprocess.run([f"{BIN}/lockstep", "run", *line], capture_output=True, text=True, timeout=LIMIT)
    said = sorted(text for text in done.stdout.splitlines() if "SAID" in text)
    expect(done.returncode == 0 and said == [f"[rank {rank}] SAID {rank} 2 --epochs 3 -- --nproc" for rank in range(2)], f"{done}")
    done = subprocess.run([f"{BIN}/lockstep", "run", *line, "--fail"], capture_output=True, text=True, timeout=LIMIT)
    shown = done.stdout + done.stderr
    expect(done.returncode == 3 and "round 2 ended: " in shown and "round 3" not in shown, f"one restart was allowed: {done}")
    done = subprocess.run([f"{BIN}/lockstep", "run", "--nnodes", "1:4", str(script)], capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == 2 and "--nnodes 1:4: " in done.stderr, f"{done}")


def test_shows_lines_as_they_are_where_asked_and_of_one_rank(folder):
    for arguments, nproc in ((["--no-prefix"], 2), ([], 1)):
        out, err = shown(folder, *arguments, nproc=nproc)
        expect(sum(line.startswith("xxx") for line in out) == nproc * LINES, f"{arguments}: {out[0][:40]}")
        expect("words of rank 0 $(HOME)" in err, f"{arguments}: {err}")


def test_begins_anew_in_place_when_one_is_killed(folder):
    with Run(folder, sums(folder, LONG, "killed")) as run:
        until_step(run, 10, in_round=1)
        workers, before = run.workers(), run.programs()
        expect(len(before) == 3, f"3 programs expected: {before}")
        os.kill(before[1], signal.SIGKILL)
        until_step(run, 10, in_round=2)
        expect(run.workers() == workers, "a pod was replaced")
        after = run.programs()
        expect(len(after) == 3 and not set(after) & set(before), f"not all were started again: {before}, {after}")
        first, second = variables(folder, 0, 0), variables(folder, 1, 0)
        expect(first["MASTER_PORT"] != second["MASTER_PORT"], "the port of the dead round was used again")
        expect(second["LOCKSTEP_ROUND"] == "2", f"{second}")
        run.until("its word on why", lambda: "was ended by signal 9 (SIGKILL)" in run.output())


# In the first round: processes that leave its group and its session, as those of torchrun do, and of which one loses its parent. Then it dies.
LEAVES_BEHIND = """
import os, signal, subprocess, sys
folder = sys.argv[1]

def is_running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

if os.environ["LOCKSTEP_ROUND"] == "1":
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    orphan = subprocess.run(["setsid", "sh", "-c", "sleep 600 >&2 & echo $!"], stdout=subprocess.PIPE, text=True, check=True).stdout
    with open(f"{folder}/left", "w") as left:
        print(child.pid, orphan, file=left)
    os.kill(os.getpid(), signal.SIGKILL)
left = [pid for pid in map(int, open(f"{folder}/left").read().split()) if is_running(pid)]
if left:
    sys.exit(f"{left} are still there")
"""


def test_all_that_a_program_has_started_ends_with_it(folder):
    limits = {"failurePolicy": {"inPlaceLimit": 1, "maxRestarts": 0}}
    with Run(folder, manifest(folder, ["python3", "-c", LEAVES_BEHIND, folder], replicas=1, sections=limits)) as run:
        expect_complete(run)
    expect([record["exit_code"] for record in logged(folder, "rank failed")] == [137], f"{logged(folder, 'rank failed')}")


def gpu_metrics(run):
    """Of the first pod."""
    ports = [record["port"] for record in logged(pathlib.Path(run.log.name).parent, "serving metrics")]
    if not ports:
        return []
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/metrics", timeout=LIMIT) as answer:
        return [line for line in answer.read().decode().splitlines() if line.startswith("lockstep_gpu_")]


def test_its_pod_tells_of_the_gpus_it_is_shown(folder):
    shutil.copy(FAKE_NVML, f"{folder}/libnvidia-ml.so.1")
    environment = {"LD_LIBRARY_PATH": folder, "CUDA_VISIBLE_DEVICES": "1"}
    with Run(folder, sums(folder, LONG, replicas=1, gpus=2), environment) as run:
        run.until("metrics of a GPU", lambda: gpu_metrics(run))
        found = gpu_metrics(run)
    temperature = 'lockstep_gpu_temperature_celsius{job_name="local",namespace="local",gpu="0",local_rank="0",replica="0",uuid="GPU-bb-2"} 62'
    expect(temperature in found and not any("GPU-aa-1" in line for line in found), f"{found}")


def test_an_exit_code_is_the_programs_own(folder):
    limits = {"failurePolicy": {"inPlaceLimit": 1, "maxRestarts": 1}}
    with Run(folder, sums(folder, LONG, "fail-always", sections=limits)) as run:
        code = run.finish()
        expect(code == 42, f"exit code {code}\n{run.output()[-4000:]}")
        expect("exited with code 42" in run.output(), run.output())
    left = [json.loads(line) for line in logs(run).splitlines() if '"message":"leaving the round"' in line]
    expect(any("exited with code 42" in r["reason"] for r in left), f"{left}")
    ends = "".join(path.read_text() for path in pathlib.Path(folder, "run").glob("*.end"))
    expect("the last words of rank 1" in ends, f"its stderr is not in its end: {ends}")


def test_a_code_that_ends_our_own_ranks_for_good_is_tried_again(folder):
    with Run(folder, sums(folder, SHORT, "fail-once")) as run:
        expect_complete(run)
    expect({r["rank"] for r in commits(run) if r["round"] >= 2 and r["step"] == SHORT - 1} == {0, 1, 2}, "not all made the last step")


def test_who_is_through_waits_and_begins_anew_with_the_one_that_fails(folder):
    with Run(folder, sums(folder, SHORT, "late")) as run:
        run.until("the late one", lambda: pathlib.Path(folder, "ledger", "is-late").exists())
        run.until("the end of the others", lambda: len(run.programs()) == 1)
        expect(len(run.workers()) == 3, "a pod has ended before all were through")
        waiting = [pid for worker in run.workers() for pid, name in children(worker) if name == "lockstep" and not children(pid)]
        before = cpu_seconds(waiting)
        time.sleep(1)
        used = cpu_seconds(waiting) - before
        expect(len(waiting) == 2 and used < 0.2, f"{len(waiting)} ranks that wait used {used} s of processors in a second")
        pathlib.Path(folder, "ledger", "go-on").touch()
        expect_complete(run)
    expect({r["rank"] for r in commits(run) if r["round"] == 2} == {0, 1, 2}, "the others did not start again")


def test_what_a_command_started_ends_with_a_killed_supervisor(folder):
    child = pathlib.Path(folder, "child")
    command = ["sh", "-c", f"sleep 1000000 & echo $! > {child}; wait"]
    started = lambda: child.exists() and child.read_text().strip()
    with Run(folder, manifest(folder, command, replicas=1)) as run:
        run.until("the command's child", started)
        first = child.read_text().strip()
        os.kill(run.workers()[0], signal.SIGKILL)
        run.until("its end", lambda: not pathlib.Path("/proc", first).exists())
        run.until("another one", lambda: started() not in ("", first))
        run.process.kill()
        run.process.wait()
        processes.expect_end("LOCKSTEP_SAMPLE_LEDGER", run.ledger)


def test_passes_sigterm_on_with_the_time_that_is_left(folder):
    with Run(folder, sums(folder, LONG, "tidy")) as run:
        until_step(run, 5, in_round=1)
        run.process.send_signal(signal.SIGTERM)
        code = run.finish()
        expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")
    tidied = {path.name: json.loads(path.read_text()) for path in pathlib.Path(folder, "ledger").glob("tidied-*")}
    expect(set(tidied) == {"tidied-0", "tidied-1", "tidied-2"}, f"{tidied}")
    # Of the pod: the default of Kubernetes, less what is kept for the way out. A pod may learn that another leaves the round before it is itself asked to end.
    left = {"Termination": 30 - 4, "RoundOver": 10}
    for said in tidied.values():
        notice = said["at_the_end"]
        expect(said["before"] == {} and notice["secondsLeft"] == left[notice["reason"]], f"{said}")
        expect(0 <= notice["deadline"] - said["time"] <= notice["secondsLeft"], f"{said}")
    expect("Termination" in [said["at_the_end"]["reason"] for said in tidied.values()], f"{tidied}")


@contextlib.contextmanager
def metadata_service(objects):
    """That of AWS: objects by path, for those that have a session's token. `objects` may change meanwhile."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self, body):
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or "")))
            self.end_headers()
            self.wfile.write((body or "").encode())

        def do_PUT(self):  # noqa: N802
            self.answer("the-token" if self.path == "/latest/api/token" else None)

        def do_GET(self):  # noqa: N802
            self.answer(objects.get(self.path) if self.headers.get("X-aws-ec2-metadata-token") == "the-token" else None)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


# Says that it runs, and ends once the notice is there.
READS_NOTICE = r"""
import os, sys, time
folder = sys.argv[1]
open(f"{folder}/runs", "w").close()
while (notice := open(os.environ["LOCKSTEP_NOTICE_FILE"]).read()) == "{}\n":
    time.sleep(0.02)
open(f"{folder}/notice", "w").write(notice)
"""


def test_a_program_learns_when_the_cloud_takes_the_machine_away(folder):
    objects = {}
    with metadata_service(objects) as url:
        path = manifest(folder, [sys.executable, "-c", READS_NOTICE, folder], replicas=1, sections={"healthPolicy": {"instanceMetadata": "AWS"}})
        with Run(folder, path, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": url}) as run:
            run.until("the program", lambda: os.path.exists(f"{folder}/runs"))
            objects["/latest/meta-data/spot/instance-action"] = json.dumps({"action": "terminate", "time": "2100-01-01T00:00:00Z"})
            code = run.finish()
            expect(code == 0, f"exit code {code}\n{run.output()[-4000:]}")
    notice = json.loads(pathlib.Path(folder, "notice").read_text())
    expect(notice["reason"] == "NodeDeparts" and notice["detail"] == "AWS: spot interruption: terminate", f"{notice}")
    expect(notice["deadline"] == 4102444800 and notice["secondsLeft"] > 1e9, f"{notice}")


def test_names_a_command_that_is_not_there(folder):
    limits = {"failurePolicy": {"inPlaceLimit": 0, "maxRestarts": 0}}
    with Run(folder, manifest(folder, ["no-such-program"], replicas=1, sections=limits)) as run:
        code = run.finish()
    expect(code == 127, f"exit code {code}\n{run.output()[-4000:]}")
    expect("command no-such-program: not found in PATH" in run.output(), run.output())


def test_names_what_is_wrong(folder):
    for field, change in (("spec.worker.template.spec.containers[trainer].command", lambda spec: spec["worker"]["template"]["spec"][
            "containers"][0].pop("command")), ("spec.checkpoint", lambda spec: spec.update(checkpoint={"uri": "file:///c"}))):
        path = sums(folder, SHORT)
        job = json.loads(path.read_text())
        change(job["spec"])
        path.write_text(json.dumps(job))
        with Run(folder, path) as run:
            code = run.finish()
            expect(code == 2 and f"{field}: " in run.output(), f"{code}: {run.output()[-2000:]}")


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_a_copy_runs_where_nothing_else_is():
    with tempfile.TemporaryDirectory(prefix="lockstep-copy-") as root:
        subprocess.run([f"{BIN}/lockstep", "copy-to", root], check=True, timeout=LIMIT)
        done = subprocess.run(["chroot", root, "/ld.so", "--library-path", "/", "/lockstep", "--version"], capture_output=True, text=True,
                              timeout=LIMIT, check=False)
        expect(done.returncode == 0 and done.stdout.startswith("lockstep "), f"{done}")
        size = sum(entry.stat().st_size for entry in pathlib.Path(root).iterdir()) / 1e6
        expect(size < 60, f"{size:.0f} MB")
        print(f"     the copy has {size:.0f} MB")


def test_an_unchanged_ddp_script_trains_on(folder):
    path = manifest(folder, [str(torch_python.python()), str(DDP), f"{folder}/ledger", "400"], replicas=2)
    with Run(folder, path) as run:
        until_step(run, 20, in_round=1, ranks=2)
        os.kill(run.programs()[1], signal.SIGKILL)
        expect_complete(run)
    steps = {r["step"] for r in commits(run) if r["round"] == 2}
    expect(max(steps) == 399 and min(steps) > 0, f"steps {min(steps)} to {max(steps)} after the restart")


YIELD, ABORT = 0, 1  # protocol/rank_control.h: LeaveMode


def joins(folder, mischief="", **options):
    return manifest(folder, ["python3", str(JOINS), f"{folder}/ledger", mischief], **options)


def events_of(run, pid):
    return [r for r in ledger.read(run.ledger) if r["pid"] == pid]


@pytest.mark.parametrize("is_late", [False, True], ids=["", "the message to one of the survivors is late"])
def test_a_program_that_joins_keeps_its_process_when_another_is_killed(folder, is_late):
    with Run(folder, joins(folder, sections={"elasticPolicy": {"minReplicas": 2, "maxReplicas": 3}})) as run:
        until_step(run, 10, in_round=1)
        before = run.programs()
        killed, last, supervisor_of_last = before[1], before[2], run.workers()[2]
        survivors = set(before) - {killed}
        pathlib.Path(run.ledger, "killed").touch()
        os.kill(killed, signal.SIGKILL)
        run.until("a round of the survivors, while the one that was killed still imports",
                  lambda: {r["pid"] for r in commits(run) if r["world"] == 2} == survivors)
        if is_late:
            os.kill(supervisor_of_last, signal.SIGSTOP)
        pathlib.Path(run.ledger, "go-on").touch()
        if is_late:
            run.until("its program leaves without a message", lambda: len([r for r in events_of(run, last) if r["event"] == "ready"]) == 3)
            os.kill(supervisor_of_last, signal.SIGCONT)
        newest = lambda: max(r["round"] for r in commits(run))
        run.until("a round of all", lambda: len({r["pid"] for r in commits(run) if r["round"] == newest() and r["world"] == 3}) == 3)
        after = {r["pid"] for r in commits(run) if r["round"] == newest()}
        pathlib.Path(run.ledger, "finish").touch()
        expect_complete(run)
    starts = [r["pid"] for r in ledger.read(run.ledger) if r["event"] == "start"]
    expect(len(starts) == 4 and survivors < after, f"processes {starts}, of which {after} finished")
    newcomer, = after - survivors
    expect([r["step"] for r in events_of(run, newcomer) if r["event"] == "ready"] == [-1], f"{events_of(run, newcomer)[:5]}")
    grows, = {r["round"] for r in commits(run) if r["world"] == 2}
    ends = {(r["round"] == grows, r["mode"]) for pid in survivors for r in events_of(run, pid) if r["event"] == "over"}
    # The first survivor that gets the message closes its connections. If the other one notices that first, it gets no message, or a late one.
    expect((True, YIELD) in ends and ends <= {(True, YIELD), (False, ABORT)}, f"the ends of rounds (it grows, mode): {ends}")
    for pid in survivors:
        own = [r for r in events_of(run, pid) if r["event"] != "commit"]
        ready = [r["step"] for r in own if r["event"] == "ready"]
        expect(ready[0] == -1 and ready == sorted(ready) and len(ready) == 3 and ready[1] >= 10, f"{own}")
        steps = [r["step"] for r in events_of(run, pid) if r["event"] == "commit"]
        expect(steps == sorted(steps) and len(set(steps)) == len(steps), f"steps of {pid} are not in order")


def test_a_program_that_crashes_before_it_joins_again_ends_by_the_limit(folder):
    limits = {"failurePolicy": {"inPlaceLimit": 2, "maxRestarts": 0}}
    with Run(folder, joins(folder, "crash-before-joining", sections=limits)) as run:
        code = run.finish()
        expect(code == 5, f"exit code {code}\n{run.output()[-4000:]}")
        expect("3 times without a round of" in logs(run), logs(run)[-4000:])
    failures = [r for r in logged(folder, "rank failed") if r["exit_code"] == 5]
    expect(len(failures) >= 3, f"{failures}")


def test_a_program_that_joins_is_asked_to_stop_without_a_signal(folder):
    with Run(folder, joins(folder)) as run:
        until_step(run, 5, in_round=1)
        run.process.send_signal(signal.SIGTERM)
        code = run.finish()
        expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")
    stops = [r["grace"] for r in ledger.read(run.ledger) if r["event"] == "stop"]
    expect(len(stops) == 3 and set(stops) == {30 - 4}, f"{stops}")


def test_each_round_is_said_to_end_for_its_own_reason(folder):
    path = manifest(folder, ["sh", "-c", "exit $((10 + LOCKSTEP_ROUND))"], replicas=1, sections={"failurePolicy": {"inPlaceLimit": 3, "maxRestarts": 0}})
    with Run(folder, path) as run:
        expect(run.finish() != 0, run.output())
        lines = [line for line in run.output().splitlines() if " ended: " in line]
        reasons = [f"round {number} ended: local-worker-0: rank process 0 exited with code {10 + number} " for number in (1, 2, 3)]
        expect([line[:len(reason)] for line, reason in zip(lines, reasons)] == reasons, run.output())


def test_a_worker_writes_why_it_ends_before_it_waits_for_the_rendezvous(folder):
    """The kubelet may kill it during that wait. Here the rendezvous never answers, so the wait takes as long as it may: three seconds."""
    config, reason = pathlib.Path(folder, "config.json"), pathlib.Path(folder, "reason")
    with socket.create_server(("127.0.0.1", 0)) as rendezvous:
        rendezvous.settimeout(LIMIT)
        config.write_text(json.dumps({"version": 1, "job": {"namespace": "default", "name": "local", "uid": "1"}, "metricsPort": 0,
                                      "rendezvous": {"url": f"http://127.0.0.1:{rendezvous.getsockname()[1]}"}}))
        environment = {"CONFIG": config, "POD_NAME": "local-worker-0", "POD_UID": "1", "POD_IP": "127.0.0.1", "TERMINATION_LOG": reason}
        with open(f"{folder}/output.txt", "w") as output:
            worker = subprocess.Popen([*ENDS_WITH_US, f"{BIN}/lockstep", "worker", "--", "sleep", str(LIMIT)], stdout=output, stderr=subprocess.STDOUT,
                                      env={**os.environ, **{f"LOCKSTEP_{name}": str(value) for name, value in environment.items()}})
        try:
            with rendezvous.accept()[0]:  # it joins
                worker.terminate()
                code = worker.wait(LIMIT)
                ended = time.time()
        finally:
            worker.kill()
            worker.wait()
    text = pathlib.Path(folder, "output.txt").read_text()
    expect(code == 143 and reason.read_text() == "stopped in good order", f"exit code {code}: {reason.read_text()}\n{text}")
    expect(ended - reason.stat().st_mtime > 2.5, f"the reason was written {ended - reason.stat().st_mtime} s before the end\n{text}")
