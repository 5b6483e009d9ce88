"""What the tutorials that need no cluster let a newcomer type, with the manifests and the script of their pages; and the TorchScript model of its guide."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import textwrap

import documented
import processes
import torch_python
from build_folder import BIN, BUILD
from cases import ENDS_WITH_US, LIMIT, expect, until
from local_run import children, programs_of

DOCS = documented.ROOT / "docs"


def fences(page, language):
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, text in found]


def environment(folder):
    """Our programs and a python3 with PyTorch first in PATH; TUTORIAL names what is started here."""
    return {**os.environ, "PATH": f"{BIN}:{folder}/bin:{os.environ['PATH']}", "TUTORIAL": folder}


def typed(command, folder):
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=LIMIT, check=False)
    expect(done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Started:
    """A command that lasts, typed in a terminal."""

    def __init__(self, command, folder):
        self.path = pathlib.Path(folder, "terminal.txt")
        with self.path.open("w") as screen:
            self.process = subprocess.Popen([*ENDS_WITH_US, *command.split()], cwd=folder, env=environment(folder), stdout=screen, stderr=screen)

    def output(self):
        return self.path.read_text()

    def until(self, pattern):
        def is_said():
            return re.search(pattern, self.output())
        until(pattern, lambda: is_said() or self.process.poll() is not None, poll=0.02, details=self.output)
        expect(is_said(), f"it has ended without: {pattern}\n{self.output()}")

    def below(self, depth):
        """The processes so many levels below it."""
        found = [self.process.pid]
        for _ in range(depth):
            found = [pid for parent in found for pid, _ in children(parent)]
        return found


@contextlib.contextmanager
def started(command, folder):
    run = Started(command, folder)
    try:
        yield run
    finally:
        run.process.kill()  # its workers and their ranks die with it
        run.process.wait()
        processes.expect_end("TUTORIAL", folder)


def stored(run):
    """The steps of the checkpoints that it has reported."""
    return [int(step) for step in re.findall(r"checkpoint of step (\d+)", run.output())]


def test_laptop(folder):
    page = (DOCS / "tutorials/laptop.md").read_text()
    manifest, = fences("tutorials/laptop.md", "yaml")
    # Long enough for what is done to it, however busy the machine is; saving often, so that there is something to wait for.
    pathlib.Path(folder, "job.yaml").write_text(manifest.replace("epochs: 2", "epochs: 40").replace("intervalSteps: 200", "intervalSteps: 20"))
    commands = [command for command, is_mention in documented.commands(page) if not is_mention]
    expect(commands.count("lockstep run job.yaml") == 2, commands)
    expect("is valid" in typed("lockstep validate job.yaml", folder), "the manifest is not valid")
    with started("lockstep run job.yaml", folder) as run:
        run.until("checkpoint of step ")
        os.kill(run.below(2)[-1], signal.SIGKILL)
        run.until(r"was ended by signal 9 \(SIGKILL\)")
        run.until(r"round [2-9]: 2 ranks")
        run.process.send_signal(signal.SIGINT)
        expect(run.process.wait(LIMIT) == 143, run.output())
        expect("interrupted: the workers save and stop" in run.output(), run.output())
    reached = stored(run)[-1]
    with started("lockstep run job.yaml", folder) as run:
        run.until("checkpoint of step ")
        expect(stored(run)[0] > reached, f"it began again, after step {reached}:\n{run.output()}")
        run.process.send_signal(signal.SIGINT)
        expect(run.process.wait(LIMIT) == 143, run.output())
    says = {"lockstep plot": "history.svg: ", "lockstep checkpoint ls": "complete", "lockstep checkpoint verify": ": sound",
            "lockstep checkpoint export": "weights.safetensors: step "}
    for command in commands:
        for begin, said in says.items():
            if command.startswith(begin):
                expect(said in typed(command, folder), f"{command} does not say {said}")


def python_with_torch(folder):
    """As `python3`, with our package."""
    path = pathlib.Path(folder, "bin", "python3")
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nPYTHONPATH={BUILD}/python:$PYTHONPATH exec {torch_python.python()} "$@"\n')
    path.chmod(0o755)


def test_your_own_script(folder):
    script, = fences("tutorials/your-own-script.md", "python")
    # Short: on a busy machine each of its steps takes long.
    pathlib.Path(folder, "train.py").write_text(script.replace("STEPS = 400", "STEPS = 15").replace("step % 50", "step % 5"))
    pathlib.Path(folder, "script.yaml").write_text(fences("tutorials/your-own-script.md", "yaml")[0])
    python_with_torch(folder)
    with started("lockstep run script.yaml", folder) as run:
        until("its first checkpoint", pathlib.Path(folder, "model.pt").exists, poll=0.02, details=run.output)
        os.kill(run.below(3)[-1], signal.SIGKILL)
        expect(run.process.wait(LIMIT) == 0, run.output())
        expect("round 2: 2 ranks" in run.output() and "exited with code 137" in run.output(), run.output())
    log = pathlib.Path(folder, "run", "script", "script-worker-0.log").read_text()
    resumed, = re.findall(r"^\[rank 0 round 2\] rank 0 of 2 starts at step (\d+)$", log, re.MULTILINE)
    expect(int(resumed) >= 5 and "[rank 0 round 2] step 15  loss " in log, log)


def test_keep_training(folder):
    """Longer than the page has it, and faster."""
    page = "tutorials/keep-training.md"
    script, = fences(page, "python")
    pathlib.Path(folder, "train.py").write_text(script.replace("epochs=8", "epochs=100").replace("% 50 ==", "% 10 =="))
    pathlib.Path(folder, "keep.yaml").write_text(fences(page, "yaml")[0])
    python_with_torch(folder)
    with started("lockstep run keep.yaml", folder) as run:
        def begun(count):
            """The steps at which so many processes have begun."""
            def steps():
                return [int(step) for step in re.findall(r"begins at step (\d+)", run.output())]
            until(f"{count} processes have begun", lambda: len(steps()) >= count or run.process.poll() is not None, details=run.output)
            return steps()

        begun(3)
        run.until(r"round \d+: 3 ranks")
        run.until("checkpoint of step ")
        before = programs_of(run.below(2))
        os.kill(before[-1], signal.SIGKILL)
        joined = begun(4)[3]
        after = programs_of(run.below(2))
        expect(set(before[:-1]) < set(after), f"of {before}, others than the last were replaced: {after}\n{run.output()}")
        expect(joined >= 10, f"the new process began at step {joined}\n{run.output()}")
        reached = stored(run)[-1]
        for pid in after:
            os.kill(pid, signal.SIGKILL)
        again = begun(7)[4:]
        expect(min(again) >= reached, f"the newest checkpoint was of step {reached}, and they began at {again}\n{run.output()}")
        run.process.send_signal(signal.SIGINT)
        expect(run.process.wait(LIMIT) == 143, run.output())


def test_a_torchscript_model(folder):
    script, = fences("how-to/models-and-plugins.md", "python")
    pathlib.Path(folder, "cnn.py").write_text(script)
    subprocess.run([torch_python.python(), "cnn.py"], cwd=folder, capture_output=True, timeout=LIMIT, check=True)
    training = {"model": {"name": "torchscript", "torchscript": {"path": f"{folder}/cnn.pt", "loss": "crossEntropy"}},
                "data": {"format": "idx", "path": "/usr/share/datasets/fashion-mnist"}, "globalBatchSize": 64, "steps": 3}
    worker = {"template": {"spec": {"containers": [{"name": "trainer", "image": "none"}]}}}
    job = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "scripted"},
           "spec": {"worker": worker, "training": training}}
    pathlib.Path(folder, "job.yaml").write_text(json.dumps(job))
    said = typed("lockstep run job.yaml", folder)
    expect("complete after" in said and re.search(r"loss [0-9.]+", said), said)
