"""`lockstep checkpoint` on what two ranks stored in a real S3 server."""
import json
import pathlib
import subprocess

import pytest

import s3_server
from cases import expect
from stored import STEPS, Tool, expect_the_tensors_of, flip_a_byte, newest, refusal, shards, train

pytestmark = pytest.mark.skipif(s3_server.missing() is not None, reason=str(s3_server.missing()))

URI = "s3://bucket/jobs/mnist"


def test_lists_verifies_exports_and_removes(folder):
    with s3_server.s3_server() as (bucket, port):
        environment = s3_server.environment(f"http://127.0.0.1:{port}")
        call = lambda *arguments, code=0: Tool(*arguments, environment=environment, code=code).out
        train(folder, URI, "zero1", environment)
        place = bucket / "jobs/mnist"
        everything = lambda: sorted(path.relative_to(place) for path in place.rglob("*"))
        before = everything()

        listed = json.loads(call("ls", URI, "--json"))
        expect([entry["step"] for entry in listed] == STEPS[::-1] and all(entry["complete"] for entry in listed), listed)
        expect(call("verify", URI).count("sound") == len(STEPS), "not all are sound")
        file = pathlib.Path(folder, "model.safetensors")
        call("export", URI, file)
        expect(expect_the_tensors_of(newest(place), file)["step"] == "126", "another step")
        expect(everything() == before, "reading changed something")

        damaged = shards(newest(place))[1]
        flip_a_byte(damaged)
        out = call("verify", URI, code=1)
        line = next(line for line in out.splitlines() if line.startswith("step 126: damaged: "))
        expect(f"{URI}/step-000000000126/{damaged.name}: " in line and out.count("sound") == len(STEPS) - 1, out)
        call("rm", URI, "--step", 120)
        refusal("rm", URI, "--step", 80, code=1, says="only sound checkpoint", environment=environment)
        call("rm", URI, "--step", 126)
        expect([entry["step"] for entry in json.loads(call("ls", URI, "--json"))] == [80], "another is left")


def test_names_what_is_wrong(folder):
    with s3_server.s3_server() as (_, port):
        url = f"http://127.0.0.1:{port}"
        refusal("verify", URI, code=1, says=f"there is no checkpoint below {URI}", environment=s3_server.environment(url))
        refusal("ls", URI, code=4, says="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
                environment=s3_server.environment(url, "another"))
        refusal("ls", URI, code=2, says="AWS_ENDPOINT_URL in the environment", environment=s3_server.environment("nowhere"))


def certificate(folder):
    """(PEM file of a certificate for localhost that vouches for itself, file of its key)"""
    certificate, key = pathlib.Path(folder, "ca.pem"), pathlib.Path(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=an S3 server",
                    "-addext", "subjectAltName=DNS:localhost,DNS:*.localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def test_trusts_the_authority_that_is_named(folder):
    authority, key = certificate(folder)
    with s3_server.s3_server("--cert", authority, "--key", key) as (_, port):
        stranger = s3_server.environment(f"https://127.0.0.1:{port}")
        environment = {**stranger, "AWS_CA_BUNDLE": str(authority)}
        train(folder, URI, "ddp", environment)
        expect([entry["step"] for entry in json.loads(Tool("ls", URI, "--json", environment=environment).out)] == STEPS[::-1], "not all are listed")
        refusal("ls", URI, code=2, says="certificate is not trusted; set AWS_CA_BUNDLE in the environment", environment=stranger)
        says = "AWS_CA_BUNDLE in the environment: "
        refusal("ls", URI, code=2, says=says, environment={**stranger, "AWS_CA_BUNDLE": "/nowhere.pem"})
        refusal("ls", URI, code=2, says=says, environment={**stranger, "AWS_CA_BUNDLE": str(key)})


def test_finds_the_bucket_by_its_host(folder):
    with s3_server.s3_server("--virtual-domain", "localhost") as (_, port):
        environment = {**s3_server.environment(f"http://localhost:{port}"), "AWS_S3_ADDRESSING_STYLE": "virtual"}
        train(folder, URI, "ddp", environment)
        expect([entry["step"] for entry in json.loads(Tool("ls", URI, "--json", environment=environment).out)] == STEPS[::-1], "not all are listed")
        refusal("ls", URI, code=2, says="AWS_S3_ADDRESSING_STYLE in the environment: must be auto, path or virtual",
                environment={**environment, "AWS_S3_ADDRESSING_STYLE": "dns"})
