"""What the chart's tests share: helm (LOCKSTEP_HELM, on PATH, or that of tests/cluster/programs), value sets, rendered objects."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml

from cases import LIMIT

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "lockstep"
KUBE_VERSION = ("--kube-version", "1.34.0")  # a helm built from source believes in a cluster of years ago
# PyYAML's own parser needs half a second for the definition, libyaml's a hundredth.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
VALUE_SETS = {"defaults": {}, **{path.stem: yaml.load(path.read_text(), LOADER) for path in sorted((CHART / "tests/values").glob("*.yaml"))}}


def built(script, program):
    """The program that a build script of ours left in the cache, or None."""
    folder = subprocess.run([ROOT / script, "--print-bin"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return shutil.which(program, path=folder)


HELM = os.environ.get("LOCKSTEP_HELM") or shutil.which("helm") or built("tests/cluster/programs/build.sh", "helm")


def helm(*arguments, values=None):
    """Runs helm with no configuration of the user's; values is a dictionary for --values."""
    with tempfile.TemporaryDirectory() as folder:
        if values is not None:
            file = pathlib.Path(folder) / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            arguments += ("--values", str(file))
        environment = {"PATH": os.environ["PATH"], "HOME": folder}
        return subprocess.run([HELM, *arguments], env=environment, capture_output=True, text=True, timeout=LIMIT)


def rendered(values=None, release="lockstep", namespace="ml-system"):
    """The chart's objects as YAML."""
    result = helm("template", release, str(CHART), "--namespace", namespace, *KUBE_VERSION, values=values)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return result.stdout


def render(values=None, **options):
    return [document for document in yaml.load_all(rendered(values, **options), LOADER) if document]
