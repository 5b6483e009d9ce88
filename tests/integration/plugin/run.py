"""A model and samples of one's own: the example of the SDK, built from installed headers alone, trains in `lockstep run`; what does not
fit is refused by field.
"""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
from build_folder import BUILD
from cases import LIMIT, expect
from local_run import SAMPLES, Run, expect_complete, manifest


def run(*command, **environment):
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=LIMIT)
    expect(done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


@functools.cache
def sdk():
    """The folder in which it is installed, until this program ends."""
    sdk.folder = tempfile.TemporaryDirectory(prefix="lockstep-plugin-")
    run("cmake", "--install", BUILD, "--component", "sdk", "--prefix", f"{sdk.folder.name}/sdk")
    return pathlib.Path(sdk.folder.name)


@functools.cache
def library(source=ROOT / "runtime/sdk/example", name="libwide.so"):
    site = subprocess.run([ROOT / ".ci/install", "--print-site"], check=True, capture_output=True, text=True).stdout.strip()
    build, copy = sdk() / name, sdk() / f"{name}-source"
    shutil.copytree(source, copy)  # ccache finds it again from another checkout
    run("cmake", "-G", "Ninja", "-S", copy, "-B", build, "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={sdk()}/sdk",
        f"-DLOCKSTEP_TORCH={site}/torch", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    run("cmake", "--build", build, CCACHE_BASEDIR=str(sdk()), CCACHE_NOHASHDIR="1")
    return str(build / name)


def job_of(folder, model=None, data=None):
    """Where nothing else is said, the example's model, and synthetic samples."""
    wide = {"path": library(), "name": "wide", **(model or {})}
    return manifest(folder, replicas=2, model={"name": "plugin", "plugin": wide}, **({"data": data} if data else {}))


def test_the_example_learns(folder):
    with Run(folder, job_of(folder, {"options": {"width": "48"}})) as started:
        expect_complete(started)
        accuracy = float(re.findall(r"test accuracy ([0-9.]+)", started.output())[-1])
        expect(accuracy > 0.8, f"accuracy {accuracy}")
        shapes = "".join(path.read_text() for path in pathlib.Path(folder, "checkpoints").rglob("manifest.json"))
        expect('"hidden.weight"' in shapes, "its parameters are not in the checkpoint")
    print(f"     accuracy {accuracy}")


def stripes(**plugin):
    return {"format": "plugin", "plugin": {"path": library(), "name": "stripes", "options": {"samples": str(SAMPLES)}, **plugin}}


def test_it_learns_from_samples_of_its_own(folder):
    with Run(folder, job_of(folder, data=stripes())) as started:
        expect_complete(started)
        accuracy = float(re.findall(r"test accuracy ([0-9.]+)", started.output())[-1])
        expect(accuracy > 0.9, f"accuracy {accuracy} of four classes")
    print(f"     accuracy {accuracy}")


def test_what_does_not_fit_is_refused_by_field(folder):
    empty = pathlib.Path(folder, "libempty.so")
    run("c++", "-shared", "-o", empty, "-x", "c++", os.devnull)
    for field, words, parts in (
            ("model.plugin.path", "/nowhere.so", {"model": {"path": "/nowhere.so"}}),
            ("model.plugin.path", "has no LOCKSTEP_PLUGIN", {"model": {"path": str(empty)}}),
            ("model.plugin.name", "no model stripes; it has wide", {"model": {"name": "stripes"}}),
            ("model.plugin.options", "width must be at least 1, not 0", {"model": {"options": {"width": "0"}}}),
            ("data.plugin.path", "has no LOCKSTEP_PLUGIN", {"data": stripes(path=str(empty))}),
            ("data.plugin.name", "no data set wide; it has stripes", {"data": stripes(name="wide")}),
            ("data.plugin.options", "samples must be at least 1, not 0", {"data": stripes(options={"samples": "0"})})):
        place = pathlib.Path(tempfile.mkdtemp(dir=folder))
        with Run(str(place), job_of(str(place), **parts)) as started:
            code = started.finish()
            said = started.output()
        expect(code != 0 and f"spec.training.{field}" in said and words in said, f"{field}: exit code {code}: {said[-1500:]}")


def test_samples_that_do_not_fit_are_told_apart(folder):
    faulty = library(ROOT / "tests/integration/plugin/faulty", "libfaulty.so")
    for name, words in (
            ("noClass", "noClass has 0 classes"),
            ("size", "size has -1 samples"),
            ("shape", "shape gave inputs Float [1, 5] on cpu, not Float [1, 4] on cpu"),
            ("type", "type gave targets Int [1] on cpu, not Long [1] on cpu"),
            ("class", "class gave the class 3, and has 3"),
            ("labels", "labels has labels Long [641] on cpu, not int64 [640]"),
            ("lateClass", "lateClass gave the class 3, and has 3"),
            ("lateException", "lateException: sample 600 cannot be read")):
        place = pathlib.Path(folder, name)
        place.mkdir()
        data = {"format": "plugin", "plugin": {"path": faulty, "name": name}}
        with Run(str(place), job_of(str(place), data=data)) as started:
            code = started.finish()
            said = started.output()
        expect(code != 0 and f"spec.training.data.plugin: {words}" in said, f"{name}: exit code {code}: {said[-1500:]}")


def test_exceptions_that_pass_end_nothing(folder):
    faulty = library(ROOT / "tests/integration/plugin/faulty", "libfaulty.so")
    for name, words in (("onceException", "not there for a moment"), ("away", "reading sample 600")):
        place = pathlib.Path(folder, name)
        place.mkdir()
        data = {"format": "plugin", "plugin": {"path": faulty, "name": name}}
        with Run(str(place), job_of(str(place), data=data)) as started:
            code = started.finish()
            expect(code == 0, f"{name}: exit code {code}: {started.output()[-1500:]}")
        logs = "".join(log.read_text() for log in (place / "run").glob("*.log"))
        expect("round broken" not in logs, f"{name}: {logs[-1500:]}")
        expect(name == "away" or words in logs, f"{name}: nothing was thrown: {logs[-1500:]}")
