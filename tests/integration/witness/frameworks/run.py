"""Programs of frameworks that we did not write, without a changed line: what Lockstep knows of them."""
import json
import os
import pathlib
import re
import shutil
import signal

import pytest

import torch_python
from cases import expect
from local_run import Run
from program_run import ProgramRun, metric

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 60
LONG = 100_000  # it is ended before


ENVIRONMENT = {"PYTHONPATH": torch_python.frameworks(), "HF_HUB_OFFLINE": "1"}


def run(folder, script, steps):
    os.makedirs(f"{folder}/out")
    return ProgramRun(folder, torch_python.python(), HERE / script, f"{folder}/out", steps, nproc=2, environment=ENVIRONMENT)


def run_and_watch_checkpoints(folder, script, *arguments):
    """One rank by a manifest that names the folder of its checkpoints."""
    os.makedirs(f"{folder}/out", exist_ok=True)
    command = [str(torch_python.python()), str(HERE / script), f"{folder}/out", *arguments]
    spec = {"observability": {"checkpointFolder": f"{folder}/out"},
            "worker": {"template": {"spec": {"containers": [{"name": "trainer", "image": "none", "command": command}]}}}}
    path = pathlib.Path(folder, "job.json")
    path.write_text(json.dumps({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": "seen"}, "spec": spec}))
    return Run(folder, path, ENVIRONMENT)


def first_step(program):
    """The first that `lockstep run` has shown."""
    return int(re.findall(r"^step (\d+)", program.output(), re.MULTILINE)[0])


@pytest.mark.parametrize("script", ["hugging_face.py", "with_lightning.py", "with_accelerate.py", "fsdp2.py"])
def test_each_step_is_counted_once(folder, script):
    with run(folder, script, STEPS) as program:
        code = program.finish()
        expect(code == 0, f"exit code {code}\n{program.output()[-4000:]}")
        expect(program.newest_step() == STEPS, f"{program.newest_step()} of {STEPS} steps were seen\n{program.output()[-2000:]}")


def test_hugging_faces_trainer_posts_its_progress_and_continues_from_its_checkpoint(folder):
    with run(folder, "hugging_face.py", LONG) as program:
        program.until("the loss in the metrics", lambda: (metric(folder, "lockstep_train_loss") or 0) > 0)
        expect(metric(folder, "lockstep_train_planned_steps") == LONG, "it did not post the number of its steps")
        program.until("a checkpoint", lambda: any(name.startswith("checkpoint-") for name in os.listdir(f"{folder}/out")))
        before = metric(folder, "lockstep_train_step")
        os.kill(program.programs()[1], signal.SIGKILL)
        program.until("round 2", lambda: "round 2: 2 ranks" in program.output())
        program.until("a step after those before", lambda: metric(folder, "lockstep_train_step") > before)


@pytest.mark.parametrize("script", ["with_lightning.py", "with_accelerate.py"])
def test_it_continues_from_its_own_checkpoint(folder, script):
    with run(folder, script, LONG) as program:
        program.until("a checkpoint", lambda: any(name == "last.ckpt" or name.startswith("step-") for name in os.listdir(f"{folder}/out")))
        before = metric(folder, "lockstep_train_step")
        os.kill(program.programs()[1], signal.SIGKILL)
        program.until("round 2", lambda: "round 2: 2 ranks" in program.output())
        program.until("a step after those before", lambda: metric(folder, "lockstep_train_step") > before)
        starts = [int(step) for step in re.findall(r"starts at step (\d+)", program.output())]
        expect(starts[:2] == [0, 0] and len(starts) == 4 and min(starts[2:]) >= 20, f"the programs started at steps {starts}")


def test_hugging_faces_trainer_saves_when_its_pod_is_ended_and_continues_from_that(folder):
    command = ("hugging_face.py", str(LONG), "at-the-end")
    with run_and_watch_checkpoints(folder, *command) as program:
        program.until("a step", lambda: "\nstep " in program.output())
        program.process.send_signal(signal.SIGTERM)
        code = program.finish()
        expect(code == 143, f"exit code {code}\n{program.output()[-4000:]}")
        [saved] = pathlib.Path(folder, "out").glob("checkpoint-*/trainer_state.json")
        step = int(saved.parent.name.removeprefix("checkpoint-"))
        expect(f"checkpoint of step {step}: file://{saved.parent}\n" in program.output(), f"{saved}: {program.output()[-2000:]}")
    shutil.rmtree(f"{folder}/run")
    os.unlink(f"{folder}/output.txt")
    with run_and_watch_checkpoints(folder, *command) as program:
        program.until("a step", lambda: "\nstep " in program.output())
        expect(first_step(program) > step, f"{first_step(program)} after {step}: it did not continue")
