"""Two `lockstep run` whose checkpoints go to one folder: only one of them may train."""
import json
import os
import pathlib

import checkpoints
from cases import LIMIT, expect, until
from local_run import Run, expect_complete, logged, manifest

FOR_EVER = 1_000_000  # epochs
LEASE = 60  # seconds, as in runtime/checkpoint/ownership.h


def job(folder, name, **training):
    """A job that is called `name`, with a folder of its own, and checkpoints in one that all share: (folder, manifest)."""
    own = f"{folder}/{name}"
    os.mkdir(own)
    path = manifest(own, replicas=2, sections={"checkpoint": {"uri": f"file://{folder}/checkpoints", "intervalSeconds": 1}}, **training)
    written = json.loads(path.read_text())
    written["metadata"]["name"] = name
    path.write_text(json.dumps(written))
    return own, path


def markers(folder):
    return [json.loads(path.read_text()) for path in pathlib.Path(folder, "checkpoints", "owners").glob("*.json")]


def until_it_has_a_checkpoint(run, folder):
    run.until("a checkpoint", lambda: checkpoints.newest(pathlib.Path(folder, "checkpoints")))


def test_refuses_a_second_job_by_name(folder):
    with Run(*job(folder, "first", epochs=FOR_EVER)) as first:
        until_it_has_a_checkpoint(first, folder)
        expect([(marker["jobName"], marker["owns"]) for marker in markers(folder)] == [("first", True)], f"{markers(folder)}")
        uid = markers(folder)[0]["jobUid"]
        with Run(*job(folder, "second")) as second:
            code = second.finish()
            reported = second.output()
        expect(code == 3, f"exit code {code}\n{reported[-4000:]}")
        for part in (f"spec.checkpoint.uri: file://{folder}/checkpoints", f'in use by job "first" (uid {uid})', "its own folder"):
            expect(part in reported, f"{part} is not in\n{reported[-4000:]}")
        expect([marker["jobName"] for marker in markers(folder)] == ["first"], f"{markers(folder)}")
        expect(first.process.poll() is None, f"the first job ended, too\n{first.output()[-4000:]}")
        first.process.terminate()
        expect(first.finish() == 143, first.output()[-4000:])


def test_begins_at_once_where_a_job_was_stopped(folder):
    """And goes on from that job's checkpoint. With zero1 ranks hand over what they hold, and leave one after the other."""
    for strategy in ("ddp", "zero1"):
        os.mkdir(f"{folder}/{strategy}")
        stops_and_goes_on(f"{folder}/{strategy}", strategy)


def stops_and_goes_on(folder, strategy):
    with Run(*job(folder, "first", epochs=FOR_EVER, strategy=strategy)) as first:
        until_it_has_a_checkpoint(first, folder)
        first.process.terminate()
        expect(first.finish() == 143, first.output()[-4000:])
    expect(not markers(folder), f"{strategy}: {markers(folder)}")
    step, _ = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    own, path = job(folder, "second", epochs=FOR_EVER, strategy=strategy)
    with Run(own, path) as second:
        second.until("a later checkpoint", lambda: checkpoints.newest(pathlib.Path(folder, "checkpoints"))[0] > step)
        expect([line["step"] for line in logged(own, "restored a checkpoint")] == [step, step], f"not both ranks from step {step}")
        second.process.terminate()
        expect(second.finish() == 143, second.output()[-4000:])


def test_leaves_no_marker_when_it_is_complete(folder):
    own, path = job(folder, "first")
    with Run(own, path) as first:
        expect_complete(first)
    expect(not markers(folder), f"{markers(folder)}")


def test_takes_over_from_a_job_that_was_killed(folder):
    with Run(*job(folder, "first", epochs=FOR_EVER)) as first:
        until_it_has_a_checkpoint(first, folder)
        first.process.kill()  # its workers and their ranks die with it
        first.process.wait()
    expect([marker["jobName"] for marker in markers(folder)] == ["first"], f"{markers(folder)}")
    step, _ = checkpoints.newest(pathlib.Path(folder, "checkpoints"))
    own, path = job(folder, "second", epochs=FOR_EVER)
    with Run(own, path) as second:
        until("its marker alone", lambda: [marker["jobName"] for marker in markers(folder)] == ["second"],
              limit=LIMIT + LEASE, details=second.output)
        second.until("a later checkpoint", lambda: checkpoints.newest(pathlib.Path(folder, "checkpoints"))[0] > step)
        said = logged(own, "removing the marker of a job that no longer runs and taking over its location")
        expect([line["other_job"] for line in said] == ["first"], f"{said}")
        second.process.terminate()
        expect(second.finish() == 143, second.output()[-4000:])
    expect(not markers(folder), f"{markers(folder)}")
