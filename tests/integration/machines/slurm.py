"""A real Slurm on the machines of a Network: its controller and a slurmd in each, as one user, with files in a folder."""
import os
import pathlib
import shutil
import subprocess

from cases import LIMIT, expect, until

PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "squeue", "scontrol"]

CONFIG = """
ClusterName=test
SlurmctldHost=m0({controller})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
SchedulerType=sched/builtin
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=600
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    return [name for name in PROGRAMS if shutil.which(name) is None and not os.path.exists(f"/usr/sbin/{name}")]


class Slurm:
    def __init__(self, network, folder):
        self.network, self.folder = network, pathlib.Path(folder)
        self.processes = []
        nodes = "\n".join(f"NodeName={name} NodeAddr={network.address(k)} CPUs=2" for k, name in enumerate(network.machines))
        text = CONFIG.format(controller=network.address(0), folder=folder, nodes=nodes, user=os.environ.get("USER", "root"))
        (self.folder / "slurm.conf").write_text(text)
        self.environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        keys = self.folder / "munge"
        keys.mkdir(mode=0o700)
        (keys / "key").write_bytes(os.urandom(1024))
        (keys / "key").chmod(0o400)
        self.spawn(0, "munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", f"--key-file={keys}/key",
                   f"--log-file={keys}/log", f"--pid-file={keys}/pid", f"--seed-file={keys}/seed")
        until("munge's socket", (self.folder / "munge.socket").exists)
        self.spawn(0, "slurmctld", "-D")
        for k, name in enumerate(self.network.machines):
            self.spawn(k, "slurmd", "-D", "-N", name)
        idle = lambda: self.run("sinfo", "--noheader", "--format=%T %D").split() == ["idle", str(len(self.network.machines))]
        until("idle nodes", idle, details=lambda: self.run("sinfo") + self.logs())

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def spawn(self, k, program, *words):
        path = shutil.which(program) or f"/usr/sbin/{program}"
        with open(self.folder / f"{program}-{k}.output", "w") as log:
            self.processes.append(subprocess.Popen(self.network.command(k, path, *words), env=self.environment, stdout=log, stderr=log))

    def run(self, *words):
        done = subprocess.run(self.network.command(0, *words), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=LIMIT)
        return done.stdout

    def submit(self, script, *options):
        said = self.run("sbatch", "--parsable", *options, script).strip()
        expect(said.isdigit(), f"sbatch: {said}\n{self.logs()}")
        return said

    def end_jobs(self):
        """At once, with all that they run: those of a case that failed would write into its folder, and keep the nodes from the next case."""
        for job in self.queue():
            self.run("scancel", "--signal=KILL", "--full", job)  # of what runs
            self.run("scancel", job)  # of what waits
        until("no job is left", lambda: not self.queue(), details=lambda: self.run("squeue") + self.logs())

    def queue(self):
        return self.run("squeue", "--noheader", "--format=%A").split()

    def state(self, job):
        """(state, exit code of the batch script) as Slurm tells."""
        fields = dict(field.split("=", 1) for field in self.run("scontrol", "--oneliner", "show", "job", job).split() if "=" in field)
        return fields.get("JobState", ""), fields.get("ExitCode", "")

    def logs(self):
        return "".join(f"\n{path.name}:\n{path.read_text()[-1000:]}" for path in sorted(self.folder.glob("*.output")))
