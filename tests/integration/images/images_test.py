"""The images that docker/build.sh makes of this build: who runs, what starts, what is in them and what must not be, whether their
lists of contents are true, and whether a second build gives the same image.

Takes the programs from LOCKSTEP_BUILD_DIR, or from LOCKSTEP_STAGE laid out for `docker/build.sh --stage`.
Skipped without root, buildah, mmdebstrap or a complete build.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest
import urllib.parse

import pytest

from build_folder import BUILD
from cases import LIMIT

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "docker" / "build.sh"
INSTALL = ROOT / ".ci" / "install"
CACHE = pathlib.Path(os.environ.get("LOCKSTEP_CACHE") or
                     pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep")
VERSION = (ROOT / "VERSION").read_text().strip()
PROGRAMS = {"operator": {"lockstep-operator", "lockstep"}, "worker": {"lockstep", "lockstep-checkpoint", "lockstep-rank"}}
ENTRYPOINTS = {"operator": ["/usr/local/bin/lockstep-operator"], "worker": ["/usr/local/bin/lockstep", "worker"]}
# Compilers, interpreters, anything that an intruder would be glad of.
UNWANTED = {"gcc", "cc", "g++", "c++", "cc1", "cc1plus", "clang", "ld", "as", "make", "cmake", "python3", "curl", "wget", "cpan"}
LIMIT_MB = {"operator": 120, "worker": 900}
HEADERS_ONLY = {"libboost1.74-dev", "libcli11-dev", "nlohmann-json3-dev"}
DATA_SET = "usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"


def missing():
    if os.geteuid() != 0:
        return "not root"
    for tool in ("buildah", "mmdebstrap"):
        if not shutil.which(tool):
            return f"{tool} is not there"
    for program in set() if "LOCKSTEP_STAGE" in os.environ else PROGRAMS["operator"] | PROGRAMS["worker"]:
        if not any((BUILD / place / program).exists() for place in ("bin", "operator", "runtime")):
            return f"{BUILD} has no {program}"
    return None


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class Image:
    """An OCI archive, read without unpacking it."""

    def __init__(self, path):
        with tarfile.open(path) as archive:
            index = json.load(archive.extractfile("index.json"))
            assert len(index["manifests"]) == 1, index
            self.name = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]
            self.digest = index["manifests"][0]["digest"].removeprefix("sha256:")
            blob = lambda descriptor: archive.extractfile("blobs/sha256/" + descriptor["digest"].split(":")[1])
            manifest = json.load(blob(index["manifests"][0]))
            configuration = json.load(blob(manifest["config"]))
            self.config = configuration["config"]
            self.layers = manifest["layers"]
            self.files, self.texts, self.local = {}, {}, {}
            for layer in self.layers:
                with tarfile.open(fileobj=blob(layer), mode="r:*") as tree:
                    self.add(tree)
        self.contents = json.loads(path.with_suffix(".cdx.json").read_text())

    def add(self, tree):
        for member in tree:
            name = member.name.lstrip("./")
            self.files[name] = member
            if name in ("var/lib/dpkg/status", "etc/shadow"):
                self.texts[name] = tree.extractfile(member).read().decode()
            elif name.startswith("usr/local/") and member.isfile():
                self.local[f"/{name}"] = hashlib.file_digest(tree.extractfile(member), "sha256").hexdigest()

    def debian_packages(self):
        """{(name, version)} of what dpkg has installed."""
        paragraphs = (dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
                      for paragraph in self.texts["var/lib/dpkg/status"].strip().split("\n\n"))
        return {(fields["Package"], fields["Version"]) for fields in paragraphs if fields["Status"].endswith(" installed")}

    def names_in(self, folder):
        return {name.rsplit("/", 1)[1] for name in self.files if name.rpartition("/")[0] == folder}


def build(components, cache=CACHE):
    """{component: (archive, size in MB)}"""
    stage = os.environ.get("LOCKSTEP_STAGE")
    command = [SCRIPT, components] + (["--stage", stage] if stage else [])
    # With an empty cache it makes the base first.
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT,
                            env=dict(os.environ, LOCKSTEP_CACHE=str(cache)))
    print(result.stdout, end="", flush=True)
    lines = [line.split() for line in result.stdout.splitlines()]
    return {pathlib.Path(path).stem.removeprefix("lockstep-"): (pathlib.Path(path), int(size)) for path, size, _ in lines}


def build_anew(component):
    """The image, built with nothing kept of earlier builds but Debian's base and the downloaded wheels."""
    with tempfile.TemporaryDirectory(dir=CACHE / "images") as folder:
        cache = pathlib.Path(folder)
        (cache / "python").symlink_to(CACHE / "python")
        shutil.copytree(CACHE / "images" / "base", cache / "images" / "base", copy_function=os.link)
        return Image(build(component, cache)[component][0])


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.images = {component: (Image(path), size) for component, (path, size) in build("all").items()}

    def each(self):
        for component in PROGRAMS:
            with self.subTest(component):
                yield component, *self.images[component]

    def test_names_are_those_that_chart_and_examples_use(self):
        for component, image, _ in self.each():
            self.assertEqual(image.name, f"localhost/lockstep-{component}:{VERSION}")

    def test_runs_as_a_number_and_without_a_shell(self):
        for component, image, _ in self.each():
            self.assertEqual(image.config["User"], "65532:65532")
            self.assertEqual(image.config["Entrypoint"], ENTRYPOINTS[component])
            self.assertEqual(image.config["StopSignal"], "SIGTERM")
            self.assertNotIn("Cmd", image.config)

    def test_labels_say_what_it_is(self):
        for component, image, _ in self.each():
            labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.config["Labels"].items()}
            self.assertEqual((labels["title"], labels["version"]), (f"lockstep-{component}", VERSION))
            self.assertTrue(labels["description"] and labels["base.name"] and labels["revision"])

    def test_lists_the_packages_that_dpkg_has(self):
        for component, image, _ in self.each():
            named = [urllib.parse.urlsplit(part["purl"]) for part in image.contents["components"]
                     if part.get("purl", "").startswith("pkg:deb/debian/")]
            binary = [urllib.parse.unquote(purl.path.rsplit("/", 1)[1]).rsplit("@", 1) for purl in named if purl.query != "arch=source"]
            listed = {(name, version) for name, version in binary if name not in HEADERS_ONLY}
            self.assertEqual(listed, image.debian_packages())
            self.assertIn("libcpprest2.10", dict(listed))
            self.assertEqual(HEADERS_ONLY - {name for name, _ in binary}, set())

    def test_lists_the_files_that_dpkg_does_not_know(self):
        for component, image, _ in self.each():
            self.assertEqual(image.contents["metadata"]["component"]["name"], f"lockstep-{component}")
            self.assertEqual(image.contents["metadata"]["component"]["hashes"][0]["content"], image.digest)
            parts = image.contents["components"]
            files = [part for part in parts + sum((part.get("components", []) for part in parts), []) if part["type"] == "file"]
            self.assertEqual({file["name"]: file["hashes"][0]["content"] for file in files}, image.local)
            self.assertEqual({file["name"] for file in files if not file.get("version")}, set())
        libraries = {part.get("purl") for part in self.images["worker"][0].contents["components"]}
        self.assertEqual(set(pinned("torch", "pyarrow")) - libraries, set())

    def test_holds_the_licence_of_each_library(self):
        for component, image, _ in self.each():
            licences = {name.removeprefix("usr/local/share/licenses/") for name in image.files if name.startswith("usr/local/share/licenses/")}
            wheels = {"torch/licenses/LICENSE", "pyarrow/licenses/LICENSE.txt", "pyarrow/licenses/NOTICE.txt"} if component == "worker" else set()
            self.assertLessEqual({f"{package}/copyright" for package in HEADERS_ONLY} | wheels, licences)
            for name, _ in image.debian_packages():
                folder = image.files.get(f"usr/share/doc/{name}")  # that of the package it is built with, for some
                package = folder.linkname if folder and folder.issym() else name
                self.assertIn(f"usr/share/doc/{package}/copyright", image.files)

    def test_a_second_build_gives_the_same_image(self):
        first = self.images["operator"][0]
        second = build_anew("operator")
        if second.digest != first.digest:
            # Debian may have newer packages than when the first was built; two builds in a row have the same.
            first, second = second, build_anew("operator")
        self.assertEqual(second.digest, first.digest)
        self.assertEqual(second.contents, first.contents)
        self.assertRegex(first.texts["etc/shadow"], r"(?m)^lockstep:!::", "tells the day of the build")

    def test_dockerfile_passes_hadolint(self):
        site = subprocess.run([INSTALL, "--print-image-site"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        result = subprocess.run([f"{site}/bin/hadolint", "--no-color", ROOT / "docker" / "Dockerfile"], stdout=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_dockerfile_compiles_what_the_build_has(self):
        # All but the compiling itself, which takes too long for each run: what .dockerignore leaves configures, and has the targets.
        with tempfile.TemporaryDirectory() as folder:
            context = pathlib.Path(folder) / "context"
            (pathlib.Path(folder) / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
            storage = ["--root", f"{folder}/root", "--runroot", f"{folder}/run", "--storage-driver", "vfs"]
            subprocess.run(["buildah", *storage, "bud", "--quiet", "--isolation", "chroot", "--file", f"{folder}/Dockerfile",
                            "--output", f"type=local,dest={context}", ROOT], check=True, stdout=subprocess.PIPE)
            self.assertEqual({path.name for path in context.iterdir()},
                             {".ci", "CMakeLists.txt", "CMakePresets.json", "VERSION", "docker", "operator", "runtime"})
            subprocess.run(["cmake", "--preset", "release", "-DLOCKSTEP_BUILD_TESTS=OFF"], cwd=context, check=True, stdout=subprocess.PIPE)
            targets = subprocess.run(["ninja", "-C", context / "build/release", "-t", "targets", "all"], stdout=subprocess.PIPE, text=True, check=True)
        recipe = (ROOT / "docker" / "Dockerfile").read_text()
        components = " ".join(re.findall(r"\.ci/build --programs (.*)", recipe)).split()
        self.assertEqual(set(components), {"operator", "worker", "kubectl", "cuda"})
        self.assertEqual({c for c in components if f"component-{c}: phony" not in targets.stdout}, set())
        self.assertLessEqual({"operator", "worker", "worker-cuda", "cli"}, set(re.findall(r"(?m)^FROM \S+ AS (\S+)$", recipe)))

    def test_nvidia_s_libraries_are_those_that_libtorch_s_wheel_asks_for(self):
        site = subprocess.run([INSTALL, "--print-site"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        metadata = next(pathlib.Path(site).glob("torch-*.dist-info/METADATA")).read_text()
        wanted = re.findall(r"(?m)^Requires-Dist: (nvidia-[\w-]+)==([\d.]+)", metadata)
        self.assertGreaterEqual(len(wanted), 4)
        self.assertEqual(pinned(*(name for name, _ in wanted)), [f"pkg:pypi/{name}@{version}" for name, version in wanted])

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


@unittest.skipIf("LOCKSTEP_STAGE" in os.environ, "staged programs have no build")
class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lockstep-cli-")))
        subprocess.run([ROOT / "docker" / "stage.sh", "cli", self.folder], check=True)

    def test_programs_start_from_any_folder(self):
        for program in ("lockstep", "kubectl-lockstep"):
            done = subprocess.run([self.folder / "bin" / program, "--version"], cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(VERSION, done.stdout)
        path = {"PATH": f"{self.folder}/bin:/usr/bin:/bin"}
        done = subprocess.run(["kubectl_complete-lockstep", "stat"], cwd="/", env=path, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr, done.stdout.split()[0]), (0, "", "status"))

    def test_programs_take_no_library_from_the_machine(self):
        lib = self.folder / "lib"
        for program in ("lockstep", "kubectl-lockstep"):
            listed = subprocess.run([lib / "ld.so", "--library-path", lib, "--list", lib / program], stdout=subprocess.PIPE, text=True, check=True).stdout
            outside = [line for line in listed.splitlines() if "=> /" in line and f"=> {lib}/" not in line and "ld-linux" not in line]
            self.assertEqual(outside, [])


def pinned(*wheels):
    """Package URLs of wheels, with the versions of .ci/install."""
    versions = dict(re.findall(r"([\w.-]+)==([\w.]+)", INSTALL.read_text()))
    return [f"pkg:pypi/{wheel}@{versions[wheel]}" for wheel in wheels]
