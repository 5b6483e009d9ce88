"""The Python package `lockstep` without a job: its parts, checkpoints in buckets, its wheel."""
import pathlib
import subprocess
import zipfile

import pytest

import azure_server
import google_server
import s3_server
from cases import LIMIT, expect
from package_run import alone, run_parts

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TRAIN, STEPS_PER_EPOCH = HERE / "train.py", 64


@pytest.mark.parametrize("parts", ["parts.py", "round_parts.py", "window_parts.py", "checkpoint_parts.py"])
def test_parts(folder, parts):
    run_parts(folder, HERE / parts)


def test_buckets(folder):
    if reasons := [server.missing() for server in (s3_server, google_server, azure_server) if server.missing()]:
        pytest.skip("; ".join(reasons))
    run_parts(folder, HERE / "bucket_parts.py")


def test_its_wheel_works_in_an_empty_folder(folder):
    """`pip install` without its downloads."""
    pip = ["/usr/bin/python3", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([ROOT / "runtime/python/build-wheel", folder], check=True, timeout=LIMIT)
    wheel, = pathlib.Path(folder).glob("*.whl")
    version = (ROOT / "VERSION").read_text().strip()
    # glibc 2.34: that of Ubuntu 22.04, RHEL 9 and Amazon Linux 2023
    expect(wheel.name == f"lockstep-{version}-py3-none-manylinux_2_34_x86_64.whl", f"{wheel.name}")
    expect("lockstep/client/source.py" in zipfile.ZipFile(wheel).namelist(), "the client is not in the wheel")
    subprocess.run([*pip, "install", "--root-user-action=ignore", "--no-deps", "--no-index", "--target", f"{folder}/site", wheel], check=True, timeout=LIMIT)
    expect(alone(folder, TRAIN, 1, environment={"PYTHONPATH": f"{folder}/site"})["steps"] == STEPS_PER_EPOCH, "not every step was made")
