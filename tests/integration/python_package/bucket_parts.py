"""Checkpoints in buckets of S3, Google Cloud Storage and Azure; run.py starts it in an interpreter that has PyTorch."""
import base64
import os
import socket
import sys

import azure_server
import google_server
import pod_identity
import pytest
import s3_server
import torch.distributed.checkpoint as dcp

import lockstep
from checkpoint_parts import STEP, flip, load, program, save, settle, state, stored_at, until_stored  # program: a fixture
from lockstep import checkpoint, memory, object_store, storage

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(autouse=True)
def new_connections():
    storage.storage_at.cache_clear()


@pytest.fixture
def bucket(monkeypatch):
    """(its folder in the server, its URI)"""
    with s3_server.s3_server() as (folder, port):
        for name, value in s3_server.environment(f"http://127.0.0.1:{port}").items():
            monkeypatch.setenv(name, value)
        yield folder / "run", "s3://bucket/run"


def test_it_is_stored_in_a_bucket(program, bucket):
    folder, uri = bucket
    found = []
    for step in (10, 20, 30):
        save(uri, float(step), step, keep=2, on_stored=found.append)
        until_stored(folder, step)
    assert found == [f"{uri}/{stored_at(folder, step).name}" for step in (10, 20, 30)]
    assert sorted(path.name for path in folder.iterdir()) == [stored_at(folder, step).name for step in (20, 30)]
    found = state(0.0)
    dcp.load(found, storage_reader=dcp.FileSystemReader(stored_at(folder, 30)))
    assert found["rate"] == 30.0
    memory.segments.cache_clear()
    os.environ[memory.VARIABLE] = ""
    assert load(uri) == (30, 30.0, 30.0)
    assert load(uri, at_most=29) == (20, 20.0, 20.0)
    file, = stored_at(folder, 30).glob("*.distcp")
    flip(file)
    with pytest.raises(dcp.api.CheckpointException, match=f"{uri}/{file.parent.name}/{file.name}: .*checksums mismatch"):  # of the store, which has one, too
        load(uri)


def test_what_does_not_fit_is_stored_in_a_bucket_at_once(program, bucket, monkeypatch):
    monkeypatch.setattr(memory, "library", lambda: type("Full", (), {"lockstep_available_memory": staticmethod(lambda: 1000.0)}))
    folder, uri = bucket
    for step in (10, 20):
        save(uri, float(step), step, keep=1)
    assert [path.name for path in folder.iterdir()] == [stored_at(folder, 20).name]
    assert load(uri) == (20, 20.0, 20.0)


def test_a_bucket_that_is_away_is_waited_for(program, monkeypatch, caplog):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for name, value in s3_server.environment(f"http://127.0.0.1:{port}").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(storage, "PATIENCE", 3.0)
    with pytest.raises(OSError, match="s3://bucket/run: no answer from the store within 3 s"):
        load("s3://bucket/run")
    assert "s3://bucket/run: no answer from the store, which is asked again for 3 s" in caplog.text


@pytest.fixture
def agent(bucket, monkeypatch, tmp_path):
    """Gives the keys of the bucket, which the environment does not have."""
    agent = pod_identity.Agent(s3_server.KEY, s3_server.SECRET, tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in {**agent.environment(), "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    yield agent
    agent.stop()


def test_the_keys_of_a_pods_role_are_found_and_waited_for(program, bucket, agent, monkeypatch, caplog):
    folder, uri = bucket
    agent.failures = 20
    monkeypatch.setattr(storage, "_FIRST_PAUSE", 0.01)
    save(uri, 2.5, 10)
    until_stored(folder, 10)
    assert agent.failures == 0
    assert "no access to the store, which is asked again for 120 s" in caplog.text
    assert load(uri) == (10, 2.5, 2.5)


def test_a_role_without_the_rights_is_named_in_time(program, bucket, agent, monkeypatch):
    agent.failures = sys.maxsize  # so requests have no keys at all
    monkeypatch.setattr(storage, "_KEYS_PATIENCE", 1.0)
    with pytest.raises(OSError, match="s3://bucket/run: no access to the store within 1 s: .*ACCESS_DENIED"):
        load("s3://bucket/run")


def test_a_bucket_behind_a_proxy_is_asked_through_it(program, monkeypatch):
    proxy = google_server.Rejecting(403)
    for name, value in {**s3_server.environment("http://store.example:9000"), "http_proxy": proxy.url(), "no_proxy": ""}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OSError, match="s3://bucket/run: .*(ACCESS_DENIED|403)"):
        load("s3://bucket/run")
    assert proxy.paths[0].startswith("http://store.example:9000/bucket")
    proxy.shutdown()
    proxy.server_close()


def test_training_continues_when_the_bucket_answers_again(program, bucket, monkeypatch):
    folder, uri = bucket
    write, faults = storage.Bucket._write, [OSError("AWS Error NETWORK_CONNECTION"), OSError("AWS Error SLOW_DOWN")]

    def away(self, *arguments):
        if faults:
            raise faults.pop()
        write(self, *arguments)
    monkeypatch.setattr(storage.Bucket, "_write", away)
    monkeypatch.setattr(storage, "_FIRST_PAUSE", 0.01)
    save(uri)
    until_stored(folder)
    assert not faults


@pytest.mark.parametrize("at_once", [False, True])
def test_one_is_stored_although_older_ones_cannot_be_removed(program, bucket, monkeypatch, caplog, at_once):
    folder, uri = bucket
    save(uri, step=10)
    until_stored(folder, 10)

    def away(self, *_):
        raise OSError("AWS Error NETWORK_CONNECTION")
    monkeypatch.setattr(storage.Bucket, "remove", away)
    if at_once:
        monkeypatch.setattr(memory, "library", lambda: type("Full", (), {"lockstep_available_memory": staticmethod(lambda: 1000.0)}))
    stored = []
    save(uri, step=20, keep=1, on_stored=stored.append)
    until_stored(folder, 20)
    assert stored == [f"{uri}/{stored_at(folder, 20).name}"]
    assert f"older checkpoints in {uri} are not removed" in caplog.text and "is not stored" not in caplog.text


def test_mistakes_in_a_uri_are_named(program, bucket, monkeypatch):
    with pytest.raises(lockstep.LockstepError, match="ftp://bucket/run: .*; write s3://bucket/run"):
        checkpoint.Writer("ftp://bucket/run", 1)
    with pytest.raises(lockstep.LockstepError, match="s3://another/run: bucket another does not exist"):
        checkpoint.Reader("s3://another/run", no_dist=True)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(OSError, match="ACCESS_DENIED|SIGNATURE"):
        load("s3://bucket/run")


@pytest.fixture
def google(monkeypatch):
    """(its URI, what lists the names of its objects)"""
    with google_server.google_server() as (bucket, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield "gs://bucket/run", lambda: sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())


@pytest.fixture
def azure(monkeypatch):
    """The same."""
    with azure_server.azure_server() as container:
        for name, value in container.variables().items():
            monkeypatch.setenv(name, value)
        yield f"abfs://box@{azure_server.ACCOUNT}.dfs.core.windows.net/run", lambda: [name for name in container.names() if not name.endswith("/")]


@pytest.mark.parametrize("kind", ["google", "azure"])
@pytest.mark.parametrize("fits", [True, False])
def test_it_is_stored_at_google_and_azure(program, request, monkeypatch, kind, fits):
    uri, names = request.getfixturevalue(kind)
    if not fits:
        monkeypatch.setattr(memory, "library", lambda: type("Full", (), {"lockstep_available_memory": staticmethod(lambda: 1000.0)}))
    found = []
    for step in (10, 20, 30):
        save(uri, float(step), step, keep=2, on_stored=found.append)
        settle()
    assert found == [f"{uri}/step-{step:012}" for step in (10, 20, 30)]
    assert {name.split("/")[1] for name in names()} == {f"step-{step:012}" for step in (20, 30)}
    memory.segments.cache_clear()
    os.environ[memory.VARIABLE] = ""
    assert load(uri) == (30, 30.0, 30.0)
    assert load(uri, at_most=29) == (20, 20.0, 20.0)


def test_what_a_killed_writer_has_left_at_azure_is_no_checkpoint(program, azure, monkeypatch):
    uri, _ = azure
    save(uri)
    settle()
    store = storage.storage_at(uri)
    with store._store.open_output_stream(str(store.path_of(STEP + 1) / ".metadata")):
        pass
    memory.segments.cache_clear()
    monkeypatch.setenv(memory.VARIABLE, "")
    assert load(uri) == (STEP, 1.0, 1.0)


@pytest.mark.parametrize("variables, uri, message", [
    ({"GOOGLE_CREDENTIALS": "/etc/key.json"}, "gs://bucket/run", "GOOGLE_CREDENTIALS in the environment: is not JSON"),
    ({"STORAGE_EMULATOR_HOST": "ftp://here"}, "gs://bucket/run", "STORAGE_EMULATOR_HOST in the environment: .* is no URL"),
    ({}, "gs://another/run", "gs://another/run: bucket another does not exist"),
    ({}, "abfs://box/run", "abfs://box/run names no account"),
    ({"AZURE_STORAGE_KEY": "secret!"}, "abfs://box@lockstep.dfs.core.windows.net/run", "AZURE_STORAGE_KEY in the environment: holds no account key"),
])
def test_mistakes_with_google_and_azure_are_named(program, google, monkeypatch, variables, uri, message):
    for name in azure_server.NONE:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises((lockstep.LockstepError, OSError), match=message):
        save(uri)
        checkpoint.Reader(uri, no_dist=True)
    settle()  # while the server is there


def test_a_wrong_key_for_azure_is_named_at_once(program, azure, monkeypatch):
    uri, _ = azure
    variable = "AZURE_STORAGE_CONNECTION_STRING"
    monkeypatch.setenv(variable, os.environ[variable].replace(azure_server.KEY, base64.b64encode(b"another key").decode()))
    with pytest.raises(OSError, match=f"{uri}: .*403"):
        load(uri)


class Hiding:
    """A store that denies access to the bucket itself."""

    def __init__(self, store, denial):
        self._store, self._denial = store, denial

    def get_file_info(self, what):
        if isinstance(what, str) and "/" not in what:
            raise OSError(self._denial)
        return self._store.get_file_info(what)

    def __getattr__(self, name):
        return getattr(self._store, name)


def hide_bucket(monkeypatch, denial):
    connect = object_store.connect
    monkeypatch.setattr(object_store, "connect", lambda uri: (Hiding(connect(uri)[0], denial), connect(uri)[1]))


def test_rights_to_objects_are_enough(program, google, monkeypatch):
    """The empty bucket itself may be hidden."""
    uri, _ = google
    hide_bucket(monkeypatch, "google::cloud::Status(PERMISSION_DENIED: storage.buckets.get")
    assert checkpoint.Reader(uri, no_dist=True).step is None


def test_rights_of_a_role_to_objects_are_enough(program, bucket, agent, monkeypatch, caplog):
    """Nobody waits for more."""
    _, uri = bucket
    hide_bucket(monkeypatch, "AWS Error ACCESS_DENIED during HeadBucket operation")
    assert checkpoint.Reader(uri, no_dist=True).step is None
    assert "asked again" not in caplog.text


@pytest.mark.parametrize("secret, says", [("", "abfs://box/run: AuthenticationException"), ("secret", "no answer from the store within 1 s: AuthenticationException")])
def test_a_service_of_azure_that_issues_tokens_is_waited_for(program, monkeypatch, secret, says):
    def unauthenticated(uri):
        raise OSError("AuthenticationException: no token")
    monkeypatch.setattr(object_store, "connect", unauthenticated)
    monkeypatch.setattr(storage, "PATIENCE", 1.0)
    monkeypatch.setenv("AZURE_CLIENT_SECRET", secret)
    monkeypatch.delenv("AZURE_FEDERATED_TOKEN_FILE", raising=False)
    with pytest.raises(OSError, match=says):
        load("abfs://box/run")


def test_googles_service_account_signs_for_us(program, monkeypatch):
    rejecting = google_server.Rejecting(403)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", rejecting.url())
    monkeypatch.setenv("GOOGLE_CREDENTIALS", google_server.service_account())
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with pytest.raises(OSError, match="gs://bucket/run: .*403|PERMISSION_DENIED"):
        load("gs://bucket/run")
    assert rejecting.tokens and all(token.startswith("Bearer ey") for token in rejecting.tokens)
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ
