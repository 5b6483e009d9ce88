#!/usr/bin/env python3
"""A model of one's own: the example of the SDK, built from installed headers alone, trains in `lockstep run`; what does not fit is
refused by field.

run.py BIN_FOLDER    runs all cases; prints `N passed, N failed`
"""
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
from cases import expect  # noqa: E402
from local_run import Run, expect_complete, main, manifest  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).parent


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


@functools.cache
def library():
    folder = tempfile.TemporaryDirectory(prefix="lockstep-plugin-")
    library.folder = folder  # until this program ends
    run("cmake", "--install", BUILD, "--component", "sdk", "--prefix", f"{folder.name}/sdk")
    site = subprocess.run([ROOT / ".ci/install", "--print-site"], check=True, capture_output=True, text=True).stdout.strip()
    run("cmake", "-G", "Ninja", "-S", ROOT / "runtime/sdk/example", "-B", f"{folder.name}/build", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_PREFIX_PATH={folder.name}/sdk", f"-DLOCKSTEP_TORCH={site}/torch")
    run("cmake", "--build", f"{folder.name}/build")
    return f"{folder.name}/build/libwide.so"


def job(folder, **plugin):
    return manifest(folder, replicas=2, model={"name": "plugin", "plugin": {"path": library(), "name": "wide", **plugin}})


def the_example_learns(folder):
    with Run(folder, job(folder, options={"width": "48"})) as started:
        expect_complete(started)
        accuracy = float(re.findall(r"test accuracy ([0-9.]+)", started.output())[-1])
        expect(accuracy > 0.8, f"accuracy {accuracy}")
        shapes = "".join(path.read_text() for path in pathlib.Path(folder, "checkpoints").rglob("manifest.json"))
        expect('"hidden.weight"' in shapes, "its parameters are not in the checkpoint")
    print(f"     accuracy {accuracy}")


def what_does_not_fit_is_refused_by_field(folder):
    empty = pathlib.Path(folder, "libempty.so")
    run("c++", "-shared", "-o", empty, "-x", "c++", os.devnull)
    for field, words, plugin in (
            ("path", "/nowhere.so", {"path": "/nowhere.so"}),
            ("path", "has no LOCKSTEP_PLUGIN", {"path": str(empty)}),
            ("name", "it has wide", {"name": "narrow"}),
            ("options", "width must be at least 1, not 0", {"options": {"width": "0"}})):
        place = pathlib.Path(folder, words.replace("/", "_").replace(" ", "_"))
        place.mkdir()
        with Run(str(place), job(str(place), **plugin)) as started:
            code = started.finish(120)
            said = started.output()
        expect(code != 0 and f"spec.training.model.plugin.{field}" in said and words in said, f"{field}: exit code {code}: {said[-1500:]}")


if __name__ == "__main__":
    sys.exit(main([the_example_learns, what_does_not_fit_is_refused_by_field]))
