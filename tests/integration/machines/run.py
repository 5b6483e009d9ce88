"""`lockstep run` on several machines, which are network namespaces: under torchrun's variables, and in jobs of a real Slurm.

Skipped without the right to make namespaces; its cases for Slurm without that, too (Debian: slurm-wlm).
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

import checkpoints
import ledger
import processes
import slurm
from build_folder import BIN
from cases import LIMIT, expect, until
from local_run import children, manifest
from machines_run import LOCKSTEP, SECRET, UNTIL_SEEN, Site, expect_each_sample_once, ranks_of_newest_round, write_program
from network import Network
from package_run import ENVIRONMENT, script_manifest

DATA = "/usr/share/datasets/fashion-mnist"
LONG = 2000  # epochs: it is stopped before
PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python_package"
DIGITS, DIGITS_BATCH = 2017, 32  # as its train.py has them


def may_make_namespaces():
    name = f"lsm{os.getpid()}-try"
    made = shutil.which("ip") and subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    return bool(made) and subprocess.run(["ip", "netns", "delete", name]).returncode == 0


@pytest.fixture(scope="module")
def network():
    if not may_make_namespaces():
        pytest.skip("this needs the right to make network namespaces")
    with Network(3) as made:
        yield made


def newest_checkpoint(folder):
    return (checkpoints.newest(pathlib.Path(folder, "checkpoints")) or [0])[0]


def test_machines_train_one_job_and_survive_a_killed_rank(network, folder):
    with Site(network, folder, machines=3, epochs=UNTIL_SEEN) as site:
        site.start_all()
        site.until_step(30, world=3)
        before = [site.ranks(k) for k in range(3)]
        os.kill(before[1][0], signal.SIGKILL)
        site.until("the rank's return", lambda: site.ranks(1) not in ([], before[1]))
        expect([site.ranks(0), site.ranks(2)] == [before[0], before[2]], "a survivor's process was replaced")
        site.expect_complete()
        expect("complete after" in site.output(0), site.output(0))
        for k in range(3):
            config = json.loads(pathlib.Path(folder, "run", f"machine-{k}", "config.json").read_text())
            expect(config["job"]["uid"], f"machine {k} has no job")
            mode = pathlib.Path(folder, "run", f"machine-{k}", "secret").stat().st_mode
            expect(mode & 0o077 == 0, f"the secret of machine {k} can be read by others")


def test_machines_meet_over_ipv6(network, folder):
    with Site(network, folder, epochs=UNTIL_SEEN) as site:
        site.start_all(MASTER_ADDR=network.ipv6_address(0))
        site.until_step(5, world=2)
        expect(f"the others join it at [{network.ipv6_address(0)}]:" in site.output(0), site.output(0))
        connected = "".join(subprocess.run(["nsenter", f"--net=/run/netns/{network.space('m1')}", "ss", "--tcp", "--numeric", "--no-header"],
                                           check=True, capture_output=True, text=True).stdout)
        expect("[fd90::1]:" in connected and "10.90.0.1:" not in connected, connected)
        site.expect_complete()


def test_ranks_of_a_script_find_each_other_although_the_name_of_a_machine_means_itself(network, folder):
    with Site(network, folder) as site:
        site.manifest = script_manifest(folder, pathlib.Path(__file__).with_name("adds_up.py"))
        site.start_all()
        codes = site.codes()
        expect(set(codes.values()) == {0}, f"exit codes {codes}\n{site.said()}")
    found = {path.name: path.read_text() for path in pathlib.Path(folder).glob("sum-*")}
    expect(found == {"sum-0": "3", "sum-1": "3"}, f"{found}")


def test_a_program_keeps_the_interface_that_its_user_names(network, folder):
    script = f'printf %s "$GLOO_SOCKET_IFNAME" > {folder}/interface-of-$RANK'
    with Site(network, folder) as site:
        write_program(site.manifest, script)
        site.start(1, GLOO_SOCKET_IFNAME="mine")
        site.start(0)
        codes = site.codes()
        expect(set(codes.values()) == {0}, f"exit codes {codes}\n{site.said()}")
    found = {path.name: path.read_text() for path in pathlib.Path(folder).glob("interface-of-*")}
    expect(found == {"interface-of-0": "eth0", "interface-of-1": "mine"}, f"{found}")


def test_rank_0_of_a_program_has_a_hostfile_of_all_machines(network, folder):
    script = f'[ -z "$LOCKSTEP_HOSTFILE" ] || cp "$LOCKSTEP_HOSTFILE" {folder}/hostfile-of-$RANK'
    with Site(network, folder) as site:
        write_program(site.manifest, script, nproc=2)
        site.start_all()
        codes = site.codes()
        expect(set(codes.values()) == {0}, f"exit codes {codes}\n{site.said()}")
    found = {path.name: path.read_text() for path in pathlib.Path(folder).glob("hostfile-of-*")}
    hosts = "".join(f"{network.address(k)} slots=2\n" for k in range(2))
    expect(found == {"hostfile-of-0": hosts}, f"{found}")


def test_a_machine_may_die_and_come_back(network, folder):
    with Site(network, folder, epochs=LONG) as site:
        site.start_all()
        site.until_step(20, world=2)
        survivor = site.ranks(0)
        site.processes[1].kill()
        site.processes[1].wait()
        site.until("a round without it", lambda: len(ranks_of_newest_round(site.ledger)) == 1)
        site.start(1)
        site.until("a round with it", lambda: len(ranks_of_newest_round(site.ledger)) == 2)
        expect(site.ranks(0) == survivor, "the survivor's process was replaced")
        site.processes[1].terminate()  # it alone goes, in good order
        expect(site.codes(1) == {1: 143}, f"{site.codes(1)}\n{site.said()}")
        site.until("a round without it", lambda: len(ranks_of_newest_round(site.ledger)) == 1)
        site.processes[0].terminate()
        expect(site.codes(0) == {0: 143}, f"{site.codes(0)}\n{site.said()}")
        expect(newest_checkpoint(folder) >= ledger.newest_commit(site.ledger), "the state was not saved")


def test_a_machine_is_cut_off_while_its_rank_trains(network, folder):
    with Site(network, folder, machines=3, epochs=LONG) as site:
        site.start_all()
        site.until_step(20, world=3)
        survivors = [site.ranks(0), site.ranks(2)]
        with network.cut_off(1):
            site.until("a round without it", lambda: len(ranks_of_newest_round(site.ledger)) == 2)
        site.until("a round with it", lambda: len(ranks_of_newest_round(site.ledger)) == 3)
        expect([site.ranks(0), site.ranks(2)] == survivors, "a survivor's process was replaced")


def test_a_machine_is_cut_off_while_ranks_of_the_python_package_connect(network, folder):
    """What the others send to it is lost, and no connection is rejected."""
    epochs, slowly, waits = 4, pathlib.Path(folder, "slowly"), pathlib.Path(folder, "waits-connecting")
    with Site(network, folder, machines=3) as site:
        site.manifest = script_manifest(folder, PACKAGE / "connects.py", epochs)
        slowly.touch()
        site.start_all(**ENVIRONMENT)
        site.until_step(5, world=3)
        survivor = site.programs(0)
        waits.touch()
        os.kill(site.programs(2)[0], signal.SIGKILL)
        site.until("two ranks connect", lambda: len(list(pathlib.Path(folder).glob("connecting-*"))) == 2)
        with network.cut_off(1):
            waits.unlink()
            site.until("a round without it", lambda: len(ranks_of_newest_round(site.ledger)) < 3)
        site.until("a round with it", lambda: len(ranks_of_newest_round(site.ledger)) == 3)
        expect(site.programs(0) == survivor, "the survivor's process was replaced")
        slowly.unlink()
        codes = site.codes()
        expect(set(codes.values()) == {0}, f"exit codes {codes}\n{site.said()}")
        expect_each_sample_once(site.ledger, epochs, DIGITS, DIGITS_BATCH)


@pytest.mark.parametrize("options", [(), ("centres",)])
def test_a_machine_is_cut_off_while_its_rank_of_the_python_package_trains(network, folder, options):
    """All continue in the processes that they have. Machine 0 has the rendezvous: without it the others wait. DistributedDataParallel itself has collectives
    in the second step of a round, which is under way when a machine is cut off, and before each forward pass of a model with buffers."""
    epochs, slowly = 4, pathlib.Path(folder, "slowly")
    with Site(network, folder, machines=3) as site:
        site.manifest = script_manifest(folder, PACKAGE / "train.py", epochs, *options)
        slowly.touch()
        site.start_all(**ENVIRONMENT)
        site.until_step(0, world=3)
        before = [site.programs(k) for k in range(3)]
        for victim, others in (1, {0, 1}), (0, {0}):
            with network.cut_off(victim):
                site.until("a round of the others", lambda: ranks_of_newest_round(site.ledger) == others)
            site.until("a round with it", lambda: len(ranks_of_newest_round(site.ledger)) == 3)
        expect([site.programs(k) for k in range(3)] == before, f"processes were replaced\n{site.said()}")
        slowly.unlink()
        codes = site.codes()
        expect(set(codes.values()) == {0}, f"exit codes {codes}\n{site.said()}")
        expect_each_sample_once(site.ledger, epochs, DIGITS, DIGITS_BATCH)


def test_all_machines_end_as_the_job_does(network, folder):
    rank = os.environ.get("LOCKSTEP_RANK_PROGRAM", str(BIN / "lockstep-rank"))
    without_data = pathlib.Path(folder, "without-data")
    without_data.write_text(f"#!/bin/sh\nexec unshare --mount sh -c 'mount -t tmpfs none {DATA} && exec {rank}'\n")
    without_data.chmod(0o755)
    with Site(network, folder, epochs=LONG, data={"format": "idx", "path": DATA}) as site:
        site.start(0)
        site.until_step(5)
        site.start(1, LOCKSTEP_RANK_PROGRAM=without_data)
        codes = site.codes()
        expect(codes == {0: 3, 1: 3}, f"exit codes {codes}\n{site.said()}")
        for k in range(2):
            expect(f"failed: spec.training.data.path: {DATA}" in site.output(k), site.said())


def test_sigterm_to_machine_0_saves_and_the_same_command_goes_on(network, folder):
    with Site(network, folder, epochs=UNTIL_SEEN) as site:
        site.start_all()
        site.until_step(30, world=2)
        site.processes[0].terminate()
        codes = site.codes()
        expect(codes == {0: 143, 1: 143}, f"exit codes {codes}\n{site.said()}")
        reached = ledger.newest_commit(site.ledger)
        expect(newest_checkpoint(folder) >= reached, f"step {reached} was committed, {newest_checkpoint(folder)} saved\n{site.said()}")
        site.start_all()
        site.expect_complete()


def test_says_why_machines_do_not_join(network, folder):
    with Site(network, folder, epochs=LONG, minimum=1) as site:
        cases_of_one = {
            "LOCKSTEP_TOKEN is not set": {"LOCKSTEP_TOKEN": ""},
            "MASTER_ADDR is not set": {"MASTER_ADDR": ""},
            "NODE_RANK: must be a number from 0 to 1": {"NODE_RANK": 2},
            ", which other machines cannot reach": {"MASTER_ADDR": "m1"},
        }
        for says, changes in cases_of_one.items():
            site.start(1, **changes)
            expect(site.codes(1) == {1: 2} and says in site.output(1), f"{says}: {site.codes(1)}\n{site.output(1)}")
        site.start(0)
        site.until_step(5)
        site.start(1, LOCKSTEP_TOKEN=SECRET[::-1])
        expect(site.codes(1) == {1: 2} and "LOCKSTEP_TOKEN must be the same" in site.output(1), site.said())
        other = Site(network, tempfile.mkdtemp(dir=folder), epochs=LONG + 1, minimum=1)
        with other:
            other.start(1)
            expect(other.codes(1) == {1: 2} and "differs from that of machine 0" in other.output(1), other.said())
        member = {"pod": "machine-1", "podUid": "uid", "slot": 1, "incarnation": "1"}
        message = json.dumps({"job": {}, "member": member, "address": network.address(1), "nproc": 1, "storePort": 1})
        for path in ("machine", "join"):
            post = f"import http.client as h; c = h.HTTPConnection('{network.address(0)}', 29500); c.request('POST', '/v1/{path}', " \
                   f"'{message}'); print(c.getresponse().status)"
            refused = subprocess.run(network.command(1, sys.executable, "-c", post), capture_output=True, text=True)
            expect(refused.stdout.strip() == "401", f"without the token {path} is answered with {refused}")
        expect(site.processes[0].poll() is None, site.said())


# ---- Slurm

@pytest.fixture(scope="module")
def daemons(network):
    if slurm.missing():
        pytest.skip(f"Slurm (Debian: slurm-wlm): {', '.join(slurm.missing())} not found")
    with tempfile.TemporaryDirectory(prefix="lockstep-slurm-") as place, slurm.Slurm(network, place) as started:
        yield started


@pytest.fixture
def site(daemons, folder):
    yield daemons
    daemons.end_jobs()
    processes.expect_end("LOCKSTEP_SAMPLE_LEDGER", f"{folder}/ledger")


def script(folder, job):
    path = pathlib.Path(folder, "job.sh")
    path.write_text("#!/bin/sh\nexport LOCKSTEP_TOKEN=$(openssl rand -hex 16)\n"
                    f"exec srun --ntasks-per-node=1 {LOCKSTEP} run {job} --folder {folder}/run\n")
    return path


def tasks(records):
    """`lockstep run` processes with this ledger, by their node's number."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            words = (entry / "cmdline").read_bytes().split(b"\0") if variables else []
        except OSError:
            continue
        if words[1:2] == [b"run"] and f"LOCKSTEP_SAMPLE_LEDGER={records}".encode() in variables:
            found[int(next(v for v in variables if v.startswith(b"SLURM_NODEID=")).split(b"=")[1])] = int(entry.name)
    return found


def submit(site, folder, **job):
    os.makedirs(f"{folder}/ledger", exist_ok=True)
    os.environ["LOCKSTEP_SAMPLE_LEDGER"] = f"{folder}/ledger"
    site.environment["LOCKSTEP_SAMPLE_LEDGER"] = f"{folder}/ledger"
    # All three nodes: one alone would be through before slow ones have joined.
    path = manifest(folder, minimum=3, **job)
    return site.submit(script(folder, path), "--nodes=3", f"--output={folder}/output.txt", f"--chdir={folder}")


def said_in(site, folder):
    logs = [pathlib.Path(folder, "output.txt"), *sorted(pathlib.Path(folder, "run").rglob("*.log"))]
    return "\n".join(path.read_text()[-3000:] for path in logs if path.exists()) + site.logs()


def until_state(site, folder, job, *states):
    until(f"state {states}", lambda: site.state(job)[0] in states, LIMIT, 0.2, lambda: said_in(site, folder))
    return site.state(job)


def until_at_work(site, folder, job, step):
    def are():
        if site.state(job)[0] not in ("PENDING", "CONFIGURING", "RUNNING"):
            raise AssertionError(f"the job ended\n{said_in(site, folder)}")
        return ledger.newest_commit(f"{folder}/ledger") >= step and len(ranks_of_newest_round(f"{folder}/ledger")) == 3
    until(f"three ranks at step {step}", are, LIMIT, 0.05, lambda: said_in(site, folder))


def test_srun_trains_on_all_nodes(site, folder):
    job = submit(site, folder, epochs=UNTIL_SEEN)
    records = f"{folder}/ledger"
    until_at_work(site, folder, job, 10)
    worker = children(tasks(records)[1])[0][0]
    victim = children(worker)[0][0]
    os.kill(victim, signal.SIGKILL)
    state = until_state(site, folder, job, "COMPLETED", "FAILED", "CANCELLED")
    output = pathlib.Path(folder, "output.txt").read_text()
    expect(state == ("COMPLETED", "0:0"), f"{state}\n{output}")
    expect_each_sample_once(records, UNTIL_SEEN)
    expect("machine 0 of 3, according to Slurm" in output and "complete after" in output, output)


def test_scancel_saves_and_the_same_script_goes_on(site, folder):
    job = submit(site, folder, epochs=UNTIL_SEEN)
    records = f"{folder}/ledger"
    until_at_work(site, folder, job, 30)
    site.run("scancel", job)
    until("the end of all tasks", lambda: not tasks(records), LIMIT, 0.1, lambda: said_in(site, folder))
    expect("interrupted: the workers save and stop" in said_in(site, folder), f"they were killed, not asked\n{said_in(site, folder)}")
    reached = ledger.newest_commit(records)
    expect(newest_checkpoint(folder) >= reached, f"step {reached} was committed, {newest_checkpoint(folder)} saved\n{said_in(site, folder)}")
    until_state(site, folder, job, "CANCELLED")
    job = submit(site, folder, epochs=UNTIL_SEEN)
    expect(until_state(site, folder, job, "COMPLETED", "FAILED") == ("COMPLETED", "0:0"), pathlib.Path(folder, "output.txt").read_text())
    expect_each_sample_once(records, UNTIL_SEEN)


def test_a_bad_end_is_the_slurm_jobs_end(site, folder):
    job = submit(site, folder, optimizer={"name": "sgd", "learningRate": 1000, "weightDecay": 1000})
    state = until_state(site, folder, job, "COMPLETED", "FAILED", "CANCELLED")
    expect(state == ("FAILED", "3:0"), f"{state}\n{pathlib.Path(folder, 'output.txt').read_text()}")
