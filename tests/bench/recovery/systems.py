"""The systems that recovery.py kills ranks of: each starts the same training in a folder of its own and ends all of it again."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import s3_server  # noqa: E402
import torch_python  # noqa: E402
import torchft_packages  # noqa: E402
from local_run import children, logged, programs_of  # noqa: E402

RANKS = 3
TRAINING = {"features": 784, "hidden": [384, 256], "classes": 10, "samples": 1920, "global_batch": 192, "seed": 7,
            "learning_rate": 0.05, "momentum": 0.9, "checkpoint_steps": 50}
# One thread for each rank, on both sides; connections stay on this machine.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


class System:
    """Processes of one training; `ledger` is the folder of its lines, one for each finished step."""

    world = RANKS  # its ranks at full strength

    def __init__(self, folder):
        self.folder = folder
        self.ledger = f"{folder}/ledger"
        os.makedirs(self.ledger)
        self.log = open(f"{folder}/output.txt", "a+")
        self.started = time.time()
        self.processes = []

    def start(self, command, **environment):
        self.processes.append(self.process(command, **environment))

    def process(self, command, **environment):
        return subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, process_group=0, env={**ENVIRONMENT, **environment})

    def take_away(self):
        """Called once when all ranks train: what is not to be there while they are killed."""

    def is_ready(self):
        """Whether the next rank may be killed."""
        return True

    def output(self):
        return pathlib.Path(self.log.name).read_text()[-3000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # the group is what it started
                process.wait()


class Lockstep(System):
    name = "lockstep run"
    training = {}  # what differs from the others

    def __init__(self, folder, programs):
        super().__init__(folder)
        job = pathlib.Path(folder, "job.json")
        self.uri, environment = self.store()
        job.write_text(json.dumps(self.manifest()))
        self.start([f"{programs}/lockstep", "run", job, "--folder", f"{folder}/run", "--checkpoint-uri", self.uri],
                   LOCKSTEP_SAMPLE_LEDGER=self.ledger, **environment)

    def store(self):
        """The URI of the checkpoints, and the environment of its clients."""
        return f"file://{self.folder}/checkpoints", {}

    def manifest(self):
        training = {
            "model": {"name": "mlp", "mlp": {"hiddenSizes": TRAINING["hidden"]}},
            "data": {"format": "synthetic", "synthetic": {"samples": TRAINING["samples"], "testSamples": 10,
                                                          "shape": [1, 28, 28], "classes": TRAINING["classes"]}},
            "optimizer": {"name": "sgd", "learningRate": TRAINING["learning_rate"], "momentum": TRAINING["momentum"]},
            "globalBatchSize": TRAINING["global_batch"], "steps": 1000000, "seed": TRAINING["seed"], **self.training}
        return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "recovery"},
                "spec": {"worker": {"replicas": self.world, "template": {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}},
                         "elasticPolicy": {"minReplicas": 1, "maxReplicas": self.world}, "training": training,
                         "checkpoint": {"uri": self.uri, "intervalSteps": TRAINING["checkpoint_steps"]}}}

    def ranks(self):
        workers = [pid for pid, name in children(self.processes[0].pid) if name == "lockstep"]
        return [pid for worker in workers for pid, name in children(worker) if name == "lockstep-rank"]


class Copies(Lockstep):
    """Everything is divided over four ranks, with a copy of each part on another rank."""

    name = "lockstep run, fsdp with two copies"
    world = 4
    training = {"strategy": "fsdp", "fsdp": {"copies": 2}}


class Groups(Lockstep):
    """Two sharding groups of two ranks."""

    name = "lockstep run, fsdp in two groups"
    world = 4
    training = {"strategy": "fsdp", "fsdp": {"shardingGroup": 2}}


class WithoutHost(Lockstep):
    """The process that hosts the rendezvous is stopped: what an operator is worth while the API server is away."""

    name = "lockstep run, rendezvous away"

    def take_away(self):
        self.processes[0].send_signal(signal.SIGSTOP)

    def __exit__(self, *exception):
        self.processes[0].send_signal(signal.SIGCONT)
        super().__exit__(*exception)


class WithoutStore(Lockstep):
    """The S3 server of the checkpoints is ended."""

    name = "lockstep run, store away"

    def store(self):
        self.server = contextlib.ExitStack()
        _, port = self.server.enter_context(s3_server.s3_server())
        return "s3://bucket/recovery", s3_server.environment(f"http://127.0.0.1:{port}")

    def take_away(self):
        self.server.close()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self.server.close()


class Script(System):
    """The unchanged script that torchrun starts, as a job without `spec.training`. A rank is killed when each has parked an interpreter for the next round."""

    name = "lockstep run of the script of torchrun"
    script = "ddp.py"
    sections = {}
    started_again = RANKS  # processes, when one rank is lost

    def __init__(self, folder, programs):
        super().__init__(folder)
        command = [str(torch_python.python_for_benches()), str(pathlib.Path(__file__).with_name(self.script)), str(settings_of(folder, self.ledger))]
        job = pathlib.Path(folder, "job.json")
        job.write_text(json.dumps({
            "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "script"},
            "spec": {"worker": {"replicas": RANKS, "template": {"spec": {"containers": [{"name": "trainer", "image": "none", "command": command}]}}},
                     "failurePolicy": {"inPlaceLimit": 1000}, **self.sections}}))
        self.parked = 0
        self.start([f"{programs}/lockstep", "run", job, "--folder", f"{folder}/run"], LOCKSTEP_SAMPLE_LEDGER=self.ledger,
                   PYTHONPATH=str(pathlib.Path(programs).parent / "python"))

    def is_ready(self):
        parked = len(logged(self.folder, "an interpreter is parked for the next round"))
        if parked < self.parked + (self.started_again if self.parked else RANKS):
            return False
        self.parked = parked
        return True

    def ranks(self):
        workers = [pid for pid, name in children(self.processes[0].pid) if name == "lockstep"]
        return programs_of([pid for worker in workers for pid, name in children(worker) if name == "lockstep"])


class ScriptFromNothing(Script):
    """Nothing is parked."""

    name = "the same, nothing parked"
    sections = {"observability": {"instrumentation": "None"}}

    def is_ready(self):
        return True


class Package(Script):
    """The same training by the Python package, whose survivors continue without the killed rank."""

    name = "lockstep, the Python package"
    script = "joined.py"
    sections = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": RANKS}}
    started_again = 1


class PackageFromNothing(ScriptFromNothing):
    """Nothing is parked."""

    name = "lockstep, the Python package, nothing parked"
    script = "joined.py"
    sections = {**Package.sections, **ScriptFromNothing.sections}


def settings_of(folder, ledger):
    settings = pathlib.Path(folder, "settings.json")
    settings.write_text(json.dumps({**TRAINING, "ledger": ledger, "checkpoint": f"{folder}/checkpoint.pt"}))
    return settings


def any_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Torchrun(System):
    """Elastic, rendezvous c10d. One agent for each rank, as in pods, or one for all: the quickest that it can be."""

    # Its default store keeps the addresses of the dead attempt: with it, it does not recover at all.
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    tuned = ["--monitor-interval=0.1", "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"]

    def __init__(self, folder, agents):
        super().__init__(folder)
        self.name = f"torchrun, {agents} agent{'s' if agents > 1 else ''}, tuned"
        settings = settings_of(folder, self.ledger)
        port = any_port()
        for _ in range(agents):
            self.start([torch_python.python_for_benches(), "-m", "torch.distributed.run", f"--nnodes=1:{agents}", f"--nproc-per-node={RANKS // agents}",
                        "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=recovery",
                        "--local-addr=127.0.0.1", "--max-restarts=1000", *self.tuned,
                        pathlib.Path(__file__).with_name("ddp.py"), settings], **self.environment)

    def ranks(self):
        return [pid for agent in self.processes for pid, name in children(agent.pid) if name.startswith("python")]


class Torchft(System):
    """Three replicas and a lighthouse. The bench is the supervisor: it starts a replica again as soon as that has ended."""

    tuned = ["--join_timeout_ms", "200", "--heartbeat_timeout_ms", "500", "--quorum_tick_ms", "20"]

    def __init__(self, folder, name, lighthouse=()):
        super().__init__(folder)
        self.name = name
        site = torchft_packages.folder()
        python = torch_python.python_for_benches()
        address = f"127.0.0.1:{any_port()}"
        self.start([python, site / "bin/torchft_lighthouse", "--bind", address, "--min_replicas", "1", *lighthouse], PYTHONPATH=str(site))
        self.command = [python, pathlib.Path(__file__).with_name("with_torchft.py"), settings_of(folder, self.ledger)]
        self.environment = {"PYTHONPATH": str(site), "TORCHFT_LIGHTHOUSE": f"http://{address}"}
        self.ended = threading.Event()
        self.replicas = {}
        self.supervisors = [threading.Thread(target=self.supervise, args=(replica,)) for replica in range(RANKS)]
        for supervisor in self.supervisors:
            supervisor.start()

    def supervise(self, replica):
        while not self.ended.is_set():
            self.replicas[replica] = self.process([*self.command, str(replica)], **self.environment)
            self.replicas[replica].wait()

    def ranks(self):
        return [process.pid for _, process in sorted(self.replicas.items()) if process.poll() is None]

    def __exit__(self, *exception):
        self.ended.set()
        for replica, supervisor in enumerate(self.supervisors):
            while supervisor.is_alive():  # it may just be starting one
                if replica in self.replicas:
                    self.replicas[replica].kill()
                supervisor.join(0.1)
        super().__exit__(*exception)


# name -> makes it, of a folder and the folder of the programs.
SYSTEMS = {"lockstep": Lockstep, "no-host": WithoutHost, "no-store": WithoutStore, "fsdp-copies": Copies, "fsdp-groups": Groups,
           "package": Package, "package-from-nothing": PackageFromNothing,
           "torchft": lambda folder, _: Torchft(folder, "torchft, tuned", Torchft.tuned),
           "torchft-default": lambda folder, _: Torchft(folder, "torchft, its own time-outs"),
           "script": Script, "script-from-nothing": ScriptFromNothing,
           "agents": lambda folder, _: Torchrun(folder, agents=RANKS),
           "agent": lambda folder, _: Torchrun(folder, agents=1)}


def prepare(names):
    """Before any time counts: what the systems need is installed."""
    if set(names) - {"lockstep", "no-host", "no-store", "fsdp-copies", "fsdp-groups"}:
        torch_python.python_for_benches()
    if {"torchft", "torchft-default"} & set(names):
        torchft_packages.folder()
