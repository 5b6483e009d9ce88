"""What docs/tutorials/cluster.md lets a newcomer type in the cluster of ./quickstart: its commands in their order, with the manifest of the page."""
import json
import os
import pathlib
import re
import subprocess

import documented
import jobs
from build_folder import BIN
from cases import LIMIT, expect, until

PAGE = (jobs.ROOT / "docs" / "tutorials" / "cluster.md").read_text()
SAYS = {"scale": "is scaled from 2 to 4 pods", "checkpoint": "has stored step ", "suspend": "is suspended", "resume": "is resumed"}


def environment(folder):
    """kubectl's plugin in PATH, and the namespace of this test as the one that kubectl takes by itself."""
    config = json.loads(jobs.kubectl("config", "view", "--raw", "--minify", "--output=json"))
    config["contexts"][0]["context"]["namespace"] = jobs.namespace()
    path = pathlib.Path(folder, "kubeconfig")
    path.write_text(json.dumps(config))
    return {**os.environ, "KUBECONFIG": str(path), "PATH": f"{BIN}:{os.environ['PATH']}"}


def typed(command, folder):
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=LIMIT, check=False)
    expect(done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def status():
    return jobs.get("--namespace", jobs.namespace(), "dtj", "second").get("status", {})


def trains(ranks, after):
    """Whether so many ranks have made steps in a round after this one."""
    now = status()
    newest = now.get("rendezvous", {})
    return newest.get("round", 0) > after and newest.get("worldSize") == ranks and now.get("progress", {}).get("step", 0) > 0


def pods():
    return jobs.get("--namespace", jobs.namespace(), "pods", "--selector=lockstep.dev/job=second")["items"]


def settled(command, round_before):
    """Waits for what the page says comes next."""
    ranks = {"kubectl apply -f second.yaml": 2, "kubectl delete pod second-worker-1": 2, "kubectl lockstep scale second 4": 4,
             "kubectl lockstep resume second": 4}.get(command)
    if ranks:
        until(f"{ranks} ranks after {command}", lambda: trains(ranks, round_before), poll=0.5, details=lambda: json.dumps(status()))
    if command == "kubectl lockstep suspend second":
        until("no pods", lambda: not pods(), poll=0.5)


def test_commands_of_the_tutorial(folder):
    manifest, = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    # It is to train until it is deleted, however quick the machine is.
    pathlib.Path(folder, "second.yaml").write_text(manifest.replace("epochs: 60", f"epochs: {jobs.LONG}"))
    commands = [command for command, is_mention in documented.commands(PAGE) if "second" in command and not is_mention]
    expect(commands == documented.IN_A_CLUSTER_TUTORIAL, commands)
    for command in commands:
        round_before = status().get("rendezvous", {}).get("round", 0) if command != commands[0] else 0
        said = typed(command, folder)
        words = command.split()
        expect(SAYS.get(words[2], "") in said, f"{command} does not say {SAYS.get(words[2])}:\n{said}")
        settled(command, round_before)
        if words[:3] == ["kubectl", "get", "pods"]:
            expect(not pods(), "a suspended job has pods")
