"""A versitygw of a test, over a folder of its own; tests/cluster/install.sh builds the program."""
import contextlib
import os
import pathlib
import tempfile

from servers import built, listening

KEY, SECRET = "lockstep", "a-secret-of-the-test"


def program():
    return built("cluster/programs/build.sh", "versitygw")


def missing():
    """Why it cannot run here; None where it can."""
    return None if os.access(program(), os.X_OK) else "no versitygw here: tests/cluster/install.sh builds it"


@contextlib.contextmanager
def s3_server(*options):
    """(folder of the bucket "bucket", port) of a server that runs until the end"""
    with tempfile.TemporaryDirectory(prefix="lockstep-s3-") as folder:
        bucket = pathlib.Path(folder, "bucket")
        bucket.mkdir()
        with listening(lambda port: [program(), "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET, "--region", "us-east-1",
                                     "--keep-alive", "--quiet", *options, "posix", folder]) as port:
            yield bucket, port


def environment(url, secret=SECRET):
    """What a client of it needs."""
    return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url}
