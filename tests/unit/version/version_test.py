"""One version: VERSION, and what .ci/version writes it to."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
VERSION = (ROOT / "VERSION").read_text().strip()
IMAGE = r"/lockstep-[a-z-]+:[0-9]+\.[0-9]+"


def named():
    """The files of this checkout that name an image with a version. The chart's own tests give the chart another version."""
    done = subprocess.run(["git", "grep", "-lE", IMAGE, "--", ":!charts/lockstep/tests"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


class Version(unittest.TestCase):
    def setUp(self):
        self.tree = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="lockstep-version-")))
        for file in ["VERSION", ".ci/version", "charts/lockstep/Chart.yaml", *named()]:
            (self.tree / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, self.tree / file)

    def script(self, *arguments):
        return subprocess.run([self.tree / ".ci/version", *arguments], capture_output=True, text=True, check=False)

    def test_this_tree_names_one_version(self):
        done = subprocess.run([ROOT / ".ci/version", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_prints_what_version_says(self):
        self.assertEqual(self.script().stdout, f"{VERSION}\n")

    def test_a_change_reaches_all_files(self):
        self.assertEqual(self.script("98.7.6").returncode, 0)
        self.assertEqual(self.script("--check").returncode, 0)
        for file in named():
            text = (self.tree / file).read_text()
            self.assertEqual(set(re.findall(r"/lockstep-[a-z-]+:([\d.]+)", text)), {"98.7.6"}, file)
        self.assertEqual(re.findall(r"(?m)^(?:version|appVersion): (.*)$", (self.tree / "charts/lockstep/Chart.yaml").read_text()), ["98.7.6"] * 2)

    def test_the_check_names_the_line_that_differs(self):
        for file, line, before, after in (("crds/examples/minimal.yaml", 12, f"worker:{VERSION}", "worker:98.7.6"),
                                          ("charts/lockstep/Chart.yaml", 6, f"appVersion: {VERSION}", "appVersion: 98.7.6")):
            with self.subTest(file):
                text = (ROOT / file).read_text()
                self.assertIn(before, text)
                (self.tree / file).write_text(text.replace(before, after))
                done = self.script("--check")
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{file}:{line}: 98.7.6, not {VERSION}\n", done.stderr)
                (self.tree / file).write_text(text)

    def test_refuses_what_is_no_version(self):
        for wrong in ("0.2", "1.2.3-beta", "1.2.3.4"):
            done = self.script(wrong)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{wrong} is no version", done.stderr)
