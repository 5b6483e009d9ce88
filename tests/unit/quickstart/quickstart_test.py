"""What ./quickstart and .ci/build do with their arguments, and what they say to a newcomer; each program that they call is a stand-in."""
import os
import pathlib
import pty
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
from cases import LIMIT, expect

MANIFEST = "image: localhost/lockstep-worker:1\n"
KUBECTL = """case "$*" in
  "get secret lockstep-s3") [ -e $STATE/secret ] ;;
  "get distributedtrainingjob fashion-mnist") [ -e $STATE/job ] ;;
  *"--watch") ;;  # a watch may end early
  *".type}") echo Complete ;;
  create*|apply*) cat >>$STATE/manifest ;;
esac
"""


class Machine:
    """A copy of quickstart in a folder where the scripts that it calls only write down that they were called."""

    def __init__(self, folder, user=0, free=100, system="ID=debian\nVERSION_CODENAME=bookworm"):
        self.folder = pathlib.Path(folder)
        self.state = self.folder / "state"
        self.state.mkdir()
        for script in ("quickstart", ".ci/build"):
            (self.folder / script).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / script, self.folder / script)
        (self.folder / "crds" / "examples").mkdir(parents=True)
        (self.folder / "crds" / "examples" / "fashion-mnist.yaml").write_text(MANIFEST)
        (self.folder / "kubeconfig").write_text("")
        self.script(".ci/install")
        for name in ("docker/build.sh", "tests/cluster/install.sh", "tests/cluster/cluster", "tests/e2e/install-lockstep",
                     "build/release/bin/lockstep", "bin/helm", "bin/sleep"):
            self.script(name)
        self.script("bin/kubectl", KUBECTL)
        self.script("bin/id", f"echo {user}\n")
        self.script("bin/df", f"echo Avail; echo {free}\n")
        self.script("bin/cmake")
        (self.folder / "os-release").write_text(f'{system}\nPRETTY_NAME="the system"\n')

    def script(self, name, text=""):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/usr/bin/env bash\necho "{name} $*" >>$STATE/calls\n{text}')
        path.chmod(0o755)

    def run(self, *arguments, program="./quickstart", stdin=subprocess.DEVNULL):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "STATE": str(self.state), "LOCKSTEP_CACHE": str(self.folder / "cache"),
                       "BASH_ENV": str(self.folder / "environment"), "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "c", "AWS_ENDPOINT_URL": "d"}
        # `.` reads the system's description from here instead of /etc.
        (self.folder / "environment").write_text(
            f'.() {{ if [ "$1" = /etc/os-release ]; then builtin . "{self.folder}/os-release"; else builtin . "$@"; fi; }}\n')
        done = subprocess.run([program, *arguments], cwd=self.folder, env=environment, stdin=stdin, capture_output=True, text=True, timeout=LIMIT, check=False)
        return done.returncode, done.stdout, done.stderr

    def calls(self):
        path = self.state / "calls"
        return path.read_text().splitlines() if path.exists() else []


def on_a_machine(case, **options):
    with tempfile.TemporaryDirectory(prefix="lockstep-quickstart-") as folder:
        case(Machine(folder, **options))


def refused(machine, code, says, *arguments, **options):
    """It ends with this code, says so on standard error, and has built nothing."""
    exit_code, _, errors = machine.run(*arguments, **options)
    expect(exit_code == code, f"{arguments}: exit code {exit_code}\n{errors}")
    expect(says in errors, f"{arguments} does not say '{says}':\n{errors}")
    made = [call for call in machine.calls() if call.startswith((".ci/", "docker/", "tests/", "bin/helm", "bin/cmake"))]
    expect(not made, f"{arguments}: {made}")


def test_help_is_no_error():
    def case(machine):
        for option in ("--help", "-h"):
            code, output, _ = machine.run(option)
            expect(code == 0 and "./quickstart --local" in output and "set -e" not in output, f"{option}: {code}\n{output}")
    on_a_machine(case)


def test_wrong_arguments_are_named():
    def case(machine):
        theirs = ("--kubeconfig", "kubeconfig")
        for says, *arguments in [
            ("unknown argument --locale", "--locale"), ("unknown argument now", "now"),
            ("--down does not go together", "--local", "--down"), ("--local does not go together", *theirs, "--local"),
            ("--kubeconfig needs a file; 'nowhere' is none", "--kubeconfig", "nowhere"), ("--kubeconfig needs a file", "--kubeconfig"),
            ("--registry needs a prefix", *theirs, "--registry"), ("--registry needs a prefix", *theirs, "--registry", "--pushed"),
            ("--registry is for a cluster of yours: give --kubeconfig FILE as well", "--registry", "example.org/team"),
            ("--pushed is for a cluster of yours", "--pushed", "--local"),
        ]:
            refused(machine, 2, says, *arguments)
    on_a_machine(case)


def test_another_system_is_shown_the_dockerfile():
    on_a_machine(lambda machine: refused(machine, 1, "docker build -f docker/Dockerfile --target worker ."), system="ID=ubuntu\nVERSION_CODENAME=noble")
    on_a_machine(lambda machine: refused(machine, 1, "this machine runs the system", "--local"), system="ID=debian\nVERSION_CODENAME=trixie")


def test_a_cluster_needs_root_and_local_processes_do_not():
    on_a_machine(lambda machine: refused(machine, 1, "./quickstart --local"), user=1000)

    def local(machine):
        code, output, errors = machine.run("--local")
        expect(code == 0, errors)
        built = [call for call in machine.calls() if "--target component-worker" in call]
        expect(built and "component-operator" not in built[0], machine.calls())
        expect("train: " in output, f"the time of a stage is missing:\n{output}")
    on_a_machine(local, user=1000)


def test_a_full_disk_is_noticed_before_anything_is_made():
    def case(machine):
        shutil.rmtree(machine.folder / "build")
        refused(machine, 1, "has 3 GB free; it takes about")
    on_a_machine(case, free=3)

    def built_before(machine):
        code, _, errors = machine.run()
        expect(code == 0, errors)
    on_a_machine(built_before, free=3)


def test_what_a_cluster_of_theirs_lacks_is_said_before_the_build():
    def case(machine):
        refused(machine, 1, "needs a Secret lockstep-s3", "--kubeconfig", "kubeconfig")
        (machine.state / "secret").touch()
        (machine.state / "job").touch()
        refused(machine, 1, "delete distributedtrainingjob fashion-mnist", "--kubeconfig", "kubeconfig")
        expect(not any("delete" in call or "create" in call for call in machine.calls()), machine.calls())
    on_a_machine(case)


def test_without_a_terminal_it_does_not_take_images_for_pushed():
    def case(machine):
        (machine.state / "secret").touch()
        arguments = ("--kubeconfig", "kubeconfig", "--registry", "example.org/team/")
        code, _, errors = machine.run(*arguments)
        expect(code == 1 and "Push both with 'docker/push.sh example.org/team', then run:" in errors and "--registry example.org/team --pushed" in errors, errors)
        expect(not any(call.startswith("bin/helm") for call in machine.calls()), machine.calls())
        code, output, errors = machine.run(*arguments, "--pushed")
        expect(code == 0 and "The job is Complete" in output, f"{output}{errors}")
        expect(any(call.startswith("bin/helm") and "image.registry=example.org/team" in call for call in machine.calls()), machine.calls())
        expect((machine.state / "manifest").read_text() == "image: example.org/team/lockstep-worker:1\n", "the job names another image")
        expect(not any(call.startswith("bin/kubectl delete") for call in machine.calls()), machine.calls())
    on_a_machine(case)


def test_at_a_terminal_it_waits_for_enter():
    def case(machine):
        (machine.state / "secret").touch()
        keyboard, terminal = pty.openpty()
        try:
            os.write(keyboard, b"\n")
            code, output, errors = machine.run("--kubeconfig", "kubeconfig", stdin=terminal)
        finally:
            os.close(keyboard)
            os.close(terminal)
        expect(code == 0 and "The job is Complete" in output, f"{output}{errors}")
    on_a_machine(case)


def test_its_own_cluster_is_used_again():
    def case(machine):
        (machine.state / "job").touch()
        code, output, errors = machine.run()
        expect(code == 0 and "The job is Complete" in output, f"{output}{errors}")
        built = [call for call in machine.calls() if "--target component-worker component-operator" in call]
        expect(built, f"the images are made of components that are not built: {machine.calls()}")
        expect(any(call.startswith("bin/kubectl delete --ignore-not-found") for call in machine.calls()), machine.calls())
    on_a_machine(case)


def test_a_build_shows_errors_whole_and_steps_in_part():
    def case(machine):
        machine.script("bin/cmake", 'case $1 in --build) printf "[lockstep %s/900] Compiling\\n" 1 2 3; echo "x.cc:1: error: no"; exit 3 ;; esac\n')
        code, output, _ = machine.run("release", "lockstep", program=".ci/build")
        expect(code == 3, f"exit code {code}")
        expect(output == "x.cc:1: error: no\n", output)
    on_a_machine(case)


def test_a_long_build_says_how_far_it_is():
    def case(machine):
        text = (machine.folder / ".ci" / "build").read_text()
        (machine.folder / ".ci" / "build").write_text(text.replace("pause=20", "pause=1"))
        machine.script("bin/cmake", 'case $1 in --build) echo "[lockstep 7/900] Compiling"; exec /bin/sleep 2.5 ;; esac\n')
        _, output, errors = machine.run("release", program=".ci/build")
        expect("build: 7/900 of the steps done" in output, output + errors)
    on_a_machine(case)


def test_only_a_new_folder_is_without_tests():
    def case(machine):
        machine.run("--programs", "--dir", "here", program=".ci/build")
        expect("-DLOCKSTEP_BUILD_TESTS=OFF" in machine.calls()[0] and "-B here" in machine.calls()[0], machine.calls())
        (machine.folder / "here").mkdir()
        (machine.folder / "here" / "CMakeCache.txt").touch()
        machine.run("--programs", "--dir", "here", program=".ci/build")
        expect("TESTS" not in machine.calls()[2], machine.calls())
        machine.run("release", program=".ci/build")
        expect("-DLOCKSTEP_BUILD_TESTS=ON" in machine.calls()[4], machine.calls())
    on_a_machine(case)
