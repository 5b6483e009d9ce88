"""Checkpoints and training data at abfs://, in Azurite: what is stored comes back, and what is wrong is named."""
import base64
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess

import pytest

import checkpoints
import ledger
from azure_server import ACCOUNT, NONE, azure_server, missing, shared_access
from build_folder import BIN
from cases import expect
from local_run import LONGER, Run, expect_complete, manifest, slow_manifest

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
JOB = f"abfs://box@{ACCOUNT}.dfs.core.windows.net/jobs/one"


def principal(authority):
    """A service principal, and where it would get its tokens."""
    return {"AZURE_TENANT_ID": "11111111-2222-3333-4444-555555555555", "AZURE_CLIENT_ID": "trainer", "AZURE_CLIENT_SECRET": "secret",
            "AZURE_AUTHORITY_HOST": authority}


def test_resumes_from_a_container(folder):
    with azure_server() as azure:
        path = slow_manifest(folder, replicas=2, sections={"checkpoint": {"uri": "abfs://elsewhere/x", "intervalSteps": 20, "keepLast": 2}}, epochs=LONGER)
        with Run(folder, path, azure.variables(), arguments=("--checkpoint-uri", JOB)) as run:
            run.until_step(50)
            run.process.send_signal(signal.SIGTERM)
            code = run.finish()
            expect(code == 143, f"exit code {code}\n{run.output()[-4000:]}")
        stored, _ = checkpoints.newest(azure.download(f"{folder}/box") / "jobs/one")
        expect(stored >= 50, f"the newest checkpoint is of step {stored}")
        # What a writer leaves that is killed before it has written: no checkpoint, and no damaged one either.
        unwritten = f"step-{900000:012}"
        azure.upload(f"jobs/one/{unwritten}/manifest.json", b"")
        begun = len(ledger.read(f"{folder}/ledger"))
        with Run(folder, path, azure.variables(), arguments=("--checkpoint-uri", JOB)) as run:
            expect_complete(run, LONGER)
        steps = [record["step"] for record in ledger.read(run.ledger)[begun:] if record["event"] == "commit"]
        logs = "".join(log.read_text() for log in pathlib.Path(folder, "run").glob("*.log"))
        expect(f'"uri":"{JOB}/step-{stored:012}"' in logs, f"no rank says that it resumed from step {stored}")
        expect(unwritten not in logs, "a manifest that is not yet written is taken for one")
        expect(steps, "the second run took no step")
        left = azure.names()
        kept = {name.split("/")[2] for name in left if name.endswith("manifest.json")} - {unwritten}
        expect(len(kept) == 2, f"keepLast is 2, there are {kept}")
        folders = {name.split("/")[2] for name in left if name.startswith("jobs/one/step-")} - {unwritten}
        expect(folders == kept, f"of checkpoints that were removed there is still something: {left}")
        tool = subprocess.run([f"{BIN}/lockstep", "checkpoint", "verify", JOB], env={**os.environ, **azure.variables()},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        expect(tool.returncode == 0 and tool.stdout.count("sound") == 2, f"verify ends with {tool.returncode}:\n{tool.stdout}")
        expect((azure.download(f"{folder}/box") / "jobs/one/history.jsonl").stat().st_size > 0, "no history")


def test_trains_from_a_container(folder):
    with azure_server() as azure:
        local = pathlib.Path(folder, "text")
        local.mkdir()
        numbers = random.Random(5)
        for part, size in (("train", 20 << 20), ("val", 1 << 16)):  # three parts of a download
            (local / f"{part}.txt").write_bytes(numbers.randbytes(size))
            azure.upload(f"text/{part}.txt", (local / f"{part}.txt").read_bytes())
        may_read = azure.variables(f"SharedAccessSignature={shared_access('rl')}")
        weights = {}
        for name, place in (("local", str(local)), ("remote", "abfs://box/text")):
            run_folder = f"{folder}/{name}"
            os.mkdir(run_folder)
            model = {"name": "gpt", "gpt": {"layers": 1, "heads": 2, "embeddingSize": 16, "contextLength": 16, "vocabularySize": 256, "dropout": 0}}
            path = manifest(run_folder, replicas=2, minimum=2, model=model, data={"format": "tokens", "path": place}, epochs=None, steps=20,
                            evaluation=None, determinism="World")
            with Run(run_folder, path, may_read) as run:
                code = run.finish()
                expect(code == 0, f"{name}: exit code {code}\n{run.output()[-4000:]}")
            weights[name] = checkpoints.digest_of_tensors(checkpoints.newest(pathlib.Path(run_folder, "checkpoints"))[1])
        expect(weights["local"] == weights["remote"], f"weights differ: {weights}")
        copies = list(pathlib.Path(folder, "remote/run/data/abfs/box").rglob("train.txt"))
        expect(len(copies) == 1 and copies[0].stat().st_size == 20 << 20, f"one copy for both ranks expected: {copies}")


def test_names_what_is_wrong(folder):
    with azure_server() as azure, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        deaf = held.getsockname()[1]  # it does not listen, and nobody else can
        wrong = base64.b64encode(b"another key").decode()
        place = "in the Secret named by spec.checkpoint.secretRef"
        cases = (
            ("abfs://absent/x", azure.variables(), f'spec.checkpoint.uri: container "absent" does not exist in account {ACCOUNT}'),
            (JOB, azure.variables(f"AccountKey={wrong}"), f"of account {ACCOUNT}: access denied; check AZURE_STORAGE_KEY, or what else gives access, {place}"),
            (JOB, azure.variables(f"SharedAccessSignature={shared_access('rl')}"), f"of account {ACCOUNT}: access denied; check AZURE_STORAGE_KEY"),
            (JOB, azure.variables(endpoint=f"http://127.0.0.1:{deaf}/{ACCOUNT}"), "no answer from the object store"),
            (JOB, azure.variables("Nothing=here"), "no credentials; set AZURE_STORAGE_KEY"),
            (JOB, {**azure.variables("Nothing=here"), **principal(f"https://127.0.0.1:{deaf}")}, "no token for the identity that AZURE_CLIENT_ID names"),
            ("abfs://box/x", NONE, "spec.checkpoint.uri: abfs://box/x names no account"),
            (JOB, {**NONE, "AZURE_STORAGE_KEY": "secret!"}, f"AZURE_STORAGE_KEY {place}: holds no account key"))
        for uri, variables, message in cases:
            impatient = manifest(folder, replicas=1, sections={"failurePolicy": {"storePatienceSeconds": 0}})
            with Run(folder, impatient, variables, arguments=("--checkpoint-uri", uri)) as run:
                code = run.finish()
                expect(code == 4 and message in run.output(), f"exit code {code}, not 4 with {message}\n{run.output()[-4000:]}")
            shutil.rmtree(f"{folder}/run", ignore_errors=True)
