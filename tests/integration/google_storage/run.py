"""Checkpoints and training data at gs://, in fake-gcs-server: what is stored comes back, and what is wrong is named."""
import os
import pathlib
import random
import shutil
import signal
import socket
import urllib.request

import pytest

import checkpoints
import ledger
from cases import expect
from google_server import Rejecting, google_server, missing, service_account
from local_run import LONGER, Run, expect_complete, manifest, slow_manifest

JOB = ("--checkpoint-uri", "gs://bucket/jobs/one")
pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def upload(environment, name, content):
    url = f"{environment['STORAGE_EMULATOR_HOST']}/upload/storage/v1/b/bucket/o?uploadType=media&name={name}"
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(urllib.request.Request(url, data=content, method="POST")).close()


def test_resumes_from_a_bucket(folder):
    with google_server() as (bucket, environment):
        path = slow_manifest(folder, replicas=2, sections={"checkpoint": {"uri": "gs://elsewhere/x", "intervalSteps": 20, "keepLast": 2}}, epochs=LONGER)
        with Run(folder, path, environment, arguments=JOB) as run:
            run.until_step(50)
            run.process.send_signal(signal.SIGTERM)
            code = run.finish()
            expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")
        stored, _ = checkpoints.newest(bucket / "jobs/one")
        expect(stored >= 50, f"the newest checkpoint is of step {stored}")
        begun = len(ledger.read(f"{folder}/ledger"))
        with Run(folder, path, environment, arguments=JOB) as run:
            expect_complete(run, LONGER)
        steps = [record["step"] for record in ledger.read(run.ledger)[begun:] if record["event"] == "commit"]
        logs = "".join(log.read_text() for log in pathlib.Path(folder, "run").glob("*.log"))
        expect(f'"uri":"gs://bucket/jobs/one/step-{stored:012}"' in logs, f"no rank says that it resumed from step {stored}")
        expect(steps, "the second run took no step")
        left = sorted(file.parent.name for file in (bucket / "jobs/one").rglob("manifest.json"))
        expect(len(left) == 2, f"keepLast is 2, there are {left}")
        expect((bucket / "jobs/one/history.jsonl").stat().st_size > 0, "no history")


def test_trains_from_a_bucket(folder):
    with google_server() as (_, environment):
        local = pathlib.Path(folder, "text")
        local.mkdir()
        numbers = random.Random(5)
        for part, size in (("train", 20 << 20), ("val", 1 << 16)):  # three parts of a download
            (local / f"{part}.txt").write_bytes(numbers.randbytes(size))
            upload(environment, f"text/{part}.txt", (local / f"{part}.txt").read_bytes())
        weights = {}
        for name, place in (("local", str(local)), ("remote", "gs://bucket/text")):
            run_folder = f"{folder}/{name}"
            os.mkdir(run_folder)
            model = {"name": "gpt", "gpt": {"layers": 1, "heads": 2, "embeddingSize": 16, "contextLength": 16, "vocabularySize": 256, "dropout": 0}}
            path = manifest(run_folder, replicas=2, minimum=2, model=model, data={"format": "tokens", "path": place}, epochs=None, steps=20,
                            evaluation=None, determinism="World")
            with Run(run_folder, path, environment) as run:
                code = run.finish()
                expect(code == 0, f"{name}: exit code {code}\n{run.output()[-4000:]}")
            weights[name] = checkpoints.digest_of_tensors(checkpoints.newest(pathlib.Path(run_folder, "checkpoints"))[1])
        expect(weights["local"] == weights["remote"], f"weights differ: {weights}")
        copies = list(pathlib.Path(folder, "remote/run/data/gs/bucket").rglob("train.txt"))
        expect(len(copies) == 1 and copies[0].stat().st_size == 20 << 20, f"one copy for both ranks expected: {copies}")


def test_names_what_is_wrong(folder):
    rejecting = Rejecting(403)
    with google_server() as (_, environment), socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        deaf = held.getsockname()[1]  # it does not listen, and nobody else can
        cases = (
            ("gs://absent/x", environment, 'spec.checkpoint.uri: bucket "absent" does not exist'),
            ("gs://bucket/x", {**environment, "STORAGE_EMULATOR_HOST": rejecting.url(), "GOOGLE_CREDENTIALS": service_account()},
             "spec.checkpoint.uri: gs://bucket/x/"),
            ("gs://bucket/x", {**environment, "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{deaf}"}, "no answer from the object store"),
            ("gs://bucket/x", {**environment, "GOOGLE_CREDENTIALS": "/etc/key.json"}, "GOOGLE_CREDENTIALS in the Secret named by "),
            ("gs://bucket/x", {**environment, "STORAGE_EMULATOR_HOST": "ftp://here"}, "STORAGE_EMULATOR_HOST in the Secret named by "))
        for uri, variables, message in cases:
            impatient = manifest(folder, replicas=1, sections={"failurePolicy": {"storePatienceSeconds": 0}})
            with Run(folder, impatient, variables, arguments=("--checkpoint-uri", uri)) as run:
                code = run.finish()
                expect(code == 4 and message in run.output(), f"exit code {code}, not 4 with {message}\n{run.output()[-4000:]}")
            shutil.rmtree(f"{folder}/run", ignore_errors=True)
    expect(rejecting.tokens and all(token.startswith("Bearer ey") for token in rejecting.tokens),
           f"no token signed by the service account: {rejecting.tokens}")
    expect("access denied; check GOOGLE_CREDENTIALS" in pathlib.Path(folder, "output.txt").read_text(), "a refusal is not named")
