"""Network namespaces as machines: m0, m1, … with an IPv4 and an IPv6 address each on a switch of their own, which reaches nothing else."""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile

from cases import ENDS_WITH_US

# $0: its name, $1: its /etc/hosts
AS_A_MACHINE = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'


def ip(*words):
    return subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True).stdout


class Network:
    def __init__(self, count):
        self.prefix = f"lsm{os.getpid()}"
        self.machines = [f"m{k}" for k in range(count)]
        self.folder = tempfile.TemporaryDirectory(prefix="lockstep-hosts-")

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        switch = self.space("switch")
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for k, name in enumerate(self.machines):
            space = self.space(name)
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", f"port{k}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{k}", "master", "br0", "up")
            ip("-n", space, "address", "add", f"{self.address(k)}/24", "dev", "eth0")
            ip("-n", space, "address", "add", f"{self.ipv6_address(k)}/64", "dev", "eth0", "nodad")
            ip("-n", space, "link", "set", "eth0", "up")
            # Its own name means 127.0.1.1 to a Debian machine.
            lines = ["127.0.0.1 localhost"] + [f"{'127.0.1.1' if other == k else self.address(other)} m{other}"
                                               for other in range(len(self.machines))]
            self.hosts(name).write_text("\n".join(lines) + "\n")

    def __exit__(self, *_):
        for name in ["switch", *self.machines]:
            with contextlib.suppress(subprocess.CalledProcessError):
                for pid in ip("netns", "pids", self.space(name)).split():  # jobs of Slurm outlive its daemons
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                ip("netns", "delete", self.space(name))
        self.folder.cleanup()

    @contextlib.contextmanager
    def cut_off(self, k):
        """Machine k reaches no other one, and none reaches it; connections are kept."""
        ip("-n", self.space("switch"), "link", "set", f"port{k}", "down")
        try:
            yield
        finally:
            ip("-n", self.space("switch"), "link", "set", f"port{k}", "up")

    def space(self, name):
        return f"{self.prefix}-{name}"

    def hosts(self, name):
        return pathlib.Path(self.folder.name, name)

    def address(self, k):
        return f"10.90.0.{k + 1}"

    def ipv6_address(self, k):
        return f"fd90::{k + 1}"

    def command(self, k, *words):
        """Runs in machine k, which knows its own name, and ends with this test."""
        name = self.machines[k]
        return [*ENDS_WITH_US, "nsenter", f"--net=/run/netns/{self.space(name)}", "--", "unshare", "--mount", "--uts", "--",
                "sh", "-c", AS_A_MACHINE, name, str(self.hosts(name)), *map(str, words)]
