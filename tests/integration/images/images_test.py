#!/usr/bin/env python3
"""The images that docker/build.sh makes of this build: who runs, what starts, what is in them and what must not be.

Takes the programs from LOCKSTEP_BUILD_DIR, or from LOCKSTEP_STAGE laid out for `docker/build.sh --stage`. Exits 77, which
ctest counts as skipped, without root, buildah, mmdebstrap or a complete build.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = ROOT / "docker" / "build.sh"
PROGRAMS = {"operator": {"lockstep-operator", "lockstep"}, "worker": {"lockstep", "lockstep-checkpoint", "lockstep-rank"}}
ENTRYPOINTS = {"operator": ["/usr/local/bin/lockstep-operator"], "worker": ["/usr/local/bin/lockstep", "worker"]}
# Compilers, interpreters, anything that an intruder would be glad of.
UNWANTED = {"gcc", "cc", "g++", "c++", "cc1", "cc1plus", "clang", "ld", "as", "make", "cmake", "python3", "curl", "wget", "cpan"}
LIMIT_MB = {"operator": 120, "worker": 900}
DATA_SET = "usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"


class Image:
    """An OCI archive, read without unpacking it."""

    def __init__(self, path):
        with tarfile.open(path) as archive:
            index = json.load(archive.extractfile("index.json"))
            assert len(index["manifests"]) == 1, index
            self.name = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]
            blob = lambda descriptor: archive.extractfile("blobs/sha256/" + descriptor["digest"].split(":")[1])
            manifest = json.load(blob(index["manifests"][0]))
            configuration = json.load(blob(manifest["config"]))
            self.config = configuration["config"]
            self.layers = manifest["layers"]
            self.files = {}
            for layer in self.layers:
                with tarfile.open(fileobj=blob(layer), mode="r:*") as tree:
                    self.files.update({member.name.lstrip("./"): member for member in tree})

    def names_in(self, folder):
        return {name.rsplit("/", 1)[1] for name in self.files if name.rpartition("/")[0] == folder}


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stage = os.environ.get("LOCKSTEP_STAGE")
        command = [BUILD, "all"] + (["--stage", stage] if stage else [])
        # With an empty cache it makes the base first.
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=540)
        print(result.stdout, end="", flush=True)
        lines = [line.split() for line in result.stdout.splitlines()]
        cls.images = {pathlib.Path(path).stem.removeprefix("lockstep-"): (Image(path), int(size)) for path, size, _ in lines}

    def each(self):
        for component in PROGRAMS:
            with self.subTest(component):
                yield component, *self.images[component]

    def test_names_are_those_that_chart_and_examples_use(self):
        for component, image, _ in self.each():
            self.assertEqual(image.name, f"localhost/lockstep-{component}:0.1.0")

    def test_runs_as_a_number_and_without_a_shell(self):
        for component, image, _ in self.each():
            self.assertEqual(image.config["User"], "65532:65532")
            self.assertEqual(image.config["Entrypoint"], ENTRYPOINTS[component])
            self.assertEqual(image.config["StopSignal"], "SIGTERM")
            self.assertNotIn("Cmd", image.config)

    def test_labels_say_what_it_is(self):
        for component, image, _ in self.each():
            labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.config["Labels"].items()}
            self.assertEqual((labels["title"], labels["version"]), (f"lockstep-{component}", "0.1.0"))
            self.assertTrue(labels["description"] and labels["base.name"] and labels["revision"])

    def test_programs_are_root_s_and_come_last(self):
        for component, image, _ in self.each():
            self.assertEqual(image.names_in("usr/local/bin"), PROGRAMS[component])
            for program in PROGRAMS[component]:
                member = image.files[f"usr/local/bin/{program}"]
                self.assertEqual((member.uid, member.mode & 0o777), (0, 0o755), program)
            self.assertLess(image.layers[-1]["size"], 50e6, "the programs' layer holds more than the programs")

    def test_holds_no_tools(self):
        for _, image, _ in self.each():
            found = set().union(*(image.names_in(folder) for folder in ("usr/bin", "usr/local/bin", "bin", "usr/sbin")))
            self.assertEqual(found & UNWANTED, set())

    def test_worker_has_a_data_set_and_the_operator_no_libtorch(self):
        self.assertIn(DATA_SET, self.images["worker"][0].files)
        self.assertIn("libtorch_cpu.so", self.images["worker"][0].names_in("usr/local/lib"))
        self.assertEqual({name for name in self.images["operator"][0].files if "libtorch" in name}, set())

    def test_sizes(self):
        for component, _, size_mb in self.each():
            self.assertLess(size_mb, LIMIT_MB[component])


def missing():
    if os.geteuid() != 0:
        return "not root"
    for tool in ("buildah", "mmdebstrap"):
        if not shutil.which(tool):
            return f"{tool} is not there"
    folder = pathlib.Path(os.environ.get("LOCKSTEP_BUILD_DIR", ROOT / "build" / "release"))
    for program in set() if "LOCKSTEP_STAGE" in os.environ else PROGRAMS["operator"] | PROGRAMS["worker"]:
        if not any((folder / place / program).exists() for place in ("bin", "operator", "runtime")):
            return f"{folder} has no {program}"
    return None


if __name__ == "__main__":
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main()
