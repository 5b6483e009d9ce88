"""What README.md, docs/ and the chart's README.md tell readers to type does what they say; tests/support/documented.py says where each command is run."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
import documented
from build_folder import BIN
from cases import LIMIT, expect

JOB = {
    "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "small"},
    "spec": {
        "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}},
        "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 60},
        "checkpoint": {"uri": "s3://somewhere/small", "intervalSteps": 20},
    },
}
VARIABLES = (ROOT / "docs/reference/environment.md").read_text()
PYTORCHJOB = ROOT / "tests" / "unit" / "runtime" / "tools" / "convert" / "pytorchjobs" / "mnist.yaml"


def shell(line, folder, where=""):
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    expect(done.returncode == 0, f"{line}{where}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def test_every_command_has_its_place():
    placed = [*documented.IN_A_FOLDER, *documented.IN_A_TUTORIAL, *documented.IN_A_CLUSTER, *set(documented.IN_A_CLUSTER_TUTORIAL),
              *documented.IN_A_RELEASE, *documented.NOT_RUN, *documented.rendered(), *documented.secrets()]
    written, _ = documented.written()
    new = {command: sorted(documents) for command, documents in written.items() if command not in placed}
    expect(not new, f"say in tests/support/documented.py where these are run: {new}")
    gone = sorted(set(placed) - set(written))
    expect(not gone, f"tests/support/documented.py has commands that stand in no document any more: {gone}")
    expect(len(placed) == len(set(placed)), "a command has two places")


def test_commands_work_in_a_fresh_folder():
    says = {  # what a reader would look for
        "lockstep models": "resnet50",
        "lockstep run job.yaml": "complete after",
        "lockstep checkpoint ls URI": "60",
        "lockstep validate job.yaml": "is valid",
    }
    with tempfile.TemporaryDirectory(prefix="lockstep-documents-") as name:
        folder = pathlib.Path(name)
        (folder / "job.yaml").write_text(json.dumps(JOB))
        shutil.copy(PYTORCHJOB, folder / "pytorchjob.yaml")
        checkpoints = folder / "run" / "small" / "checkpoints"
        for command in documented.IN_A_FOLDER:
            said = shell(documented.filled_in(command, FOLDER=str(checkpoints), URI=f"file://{checkpoints}"), folder)
            expect(says.get(command, "") in said, f"{command} does not say {says.get(command)}:\n{said}")
        expect((folder / "history.svg").read_text().startswith("<svg"), "lockstep plot has drawn nothing")


def test_mentions_are_commands_of_programs():
    _, mentions = documented.written()
    missing = set()
    for command, documents in mentions.items():
        program = ROOT / command.split()[0] if command.startswith("./") else command.split()[0]
        if not (BIN / program).exists() and not shutil.which(program):
            missing.add(str(program))
            continue
        own = re.split(r" -- | \S+\.py\b", command)[0]  # what follows is the user's own program
        shell(f"{own} --help", ROOT, f" in {sorted(documents)}")
    if missing:
        print(f"SKIPPED those of programs that are not here: {sorted(missing)}")


def program(name):
    """That of PATH, or the one that tests/cluster has built."""
    built = subprocess.run([ROOT / "tests/cluster/programs/build.sh", "--print-bin"], capture_output=True, text=True, timeout=LIMIT, check=True)
    found = shutil.which(name) or shutil.which(name, path=built.stdout.strip())
    return found or pytest.skip(f"no {name}; run: tests/cluster/install.sh")


def test_the_chart_has_the_values_that_commands_set():
    """The chart's schema refuses what it does not know."""
    helm, found = program("helm"), documented.rendered()
    expect(len(found) > 4, found)
    for command in found:
        line = re.sub(r"^helm (install|upgrade)", f"{helm} template --kube-version 1.34.0", command)
        shell(re.sub(r" --(reset-then-reuse-values|create-namespace|take-ownership)\b", "", line), ROOT)


def test_secrets_are_made_as_written():
    kubectl, found = program("kubectl"), documented.secrets()
    expect(len(found) > 3, found)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "key.json").write_text("{}")
        for command in found:
            secret = json.loads(shell(f"{kubectl} {command.removeprefix('kubectl ')} --dry-run=client --output=json", folder))
            unknown = [name for name in secret["data"] if f"`{name}`" not in VARIABLES]
            expect(not unknown, f"{command}: docs/reference/environment.md does not have {unknown}")


def test_manifests_are_valid():
    expect(documented.manifests(), "there is no manifest in the documents")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        for document, text in documented.manifests():
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
            expect("is valid" in shell(f"lockstep validate {file.name}", ROOT), f"the manifest in {document} is not valid")
