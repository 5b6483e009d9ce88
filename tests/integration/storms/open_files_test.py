"""The limit of open files: programs that serve many connections raise it, and what they start has the limit that they were started with."""
import json
import pathlib
import re
import resource
import subprocess
import tempfile

from build_folder import BIN, BUILD
from cases import ENDS_WITH_US, LIMIT, expect, until

SOFT = 300
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
LIMITED = ["prlimit", f"--nofile={SOFT}:{HARD}"]


def soft_limit(limits):
    return int(re.search(r"Max open files +(\d+)", limits).group(1))


def test_the_operator_raises_its_limit(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}))
    with tempfile.TemporaryFile("w+") as log:
        operator = subprocess.Popen(
            [*ENDS_WITH_US, *LIMITED, BUILD / "operator/lockstep-operator", f"--kubeconfig={kubeconfig}", "--metrics-address=127.0.0.1:0",
             "--rendezvous-url=http://127.0.0.1:1"], stdout=log, stderr=subprocess.STDOUT)
        try:
            def started():
                log.seek(0)
                return '"operator started"' in log.read()
            until("the operator has started", started)
            limit = soft_limit(pathlib.Path(f"/proc/{operator.pid}/limits").read_text())
        finally:
            operator.kill()
            operator.wait()
    expect(limit == HARD, f"its limit is {limit}, not {HARD}")


def test_the_supervisor_raises_its_limit_and_a_program_keeps_its_own(tmp_path):
    # The supervisor is the parent of `lockstep program`, which is the parent of the command.
    script = ("cat /proc/self/limits > own; cat /proc/$PPID/limits > parent; "
              "cat /proc/$(awk '/^PPid:/ {print $2}' /proc/$PPID/status)/limits > supervisor")
    job = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "limits"},
           "spec": {"nprocPerNode": 1, "worker": {"replicas": 1, "template": {"spec": {"containers": [
               {"name": "trainer", "image": "none", "command": ["sh", "-c", f"cd {tmp_path}; {script}"]}]}}}}}
    manifest = tmp_path / "job.json"
    manifest.write_text(json.dumps(job))
    subprocess.run([*LIMITED, BIN / "lockstep", "run", manifest, "--folder", tmp_path / "run"], check=True, timeout=LIMIT)
    found = {name: soft_limit((tmp_path / name).read_text()) for name in ("own", "parent", "supervisor")}
    expect(found == {"own": SOFT, "parent": HARD, "supervisor": HARD}, f"limits are {found}, the hard one is {HARD}")
