"""The images come from a registry: docker/push.sh pushes them, `helm install` with image.registry and the job that its notes show pull them.

The registry is Debian's docker-registry on this machine's address in the cluster's network, with TLS. ctest runs this before
install-lockstep, when the nodes have none of the images; it ends with what install-lockstep installs.
"""
import os
import pathlib
import re
import shutil
import subprocess
import textwrap
import urllib.parse

import pytest
import yaml

import jobs
from image_registry import registry
from cases import LIMIT, expect, until

VERSION = jobs.IMAGE.rpartition(":")[2]
LACKING = [tool for tool in ("docker-registry", "skopeo") if not shutil.which(tool)]
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"{', '.join(LACKING)}: not there; run: .ci/install")
OPERATORS = ("--namespace", "lockstep-system", "--selector=app.kubernetes.io/name=lockstep")


def run(*command, **variables):
    done = subprocess.run(command, cwd=jobs.ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=LIMIT, check=False)
    expect(done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def trust(host, certificate):
    """Lets the nodes pull from the registry; containerd reads this at each pull."""
    folder = pathlib.Path(os.environ["LOCKSTEP_CLUSTER"], "registries", host)
    folder.mkdir(parents=True)
    shutil.copy(certificate, folder)
    (folder / "hosts.toml").write_text(f'server = "https://{host}"\n[host."https://{host}"]\n  ca = "{folder / certificate.name}"\n')


def images(*selection):
    """{(name, digest)} of what runs in the containers of these pods."""
    statuses = [status for pod in jobs.get(*selection, "pods")["items"] for status in pod["status"].get("containerStatuses", [])]
    return {(status["image"], status["imageID"].rpartition("@")[2]) for status in statuses}


def test_chart_and_job_run_what_was_pushed():
    machine = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"]).hostname.rpartition(".")[0] + ".254"  # tests/cluster/README.md
    with registry(machine, tls=True) as (host, folder):
        prefix = f"{host}/team"
        pushed = dict(line.split("@") for line in run("docker/push.sh", prefix, SSL_CERT_FILE=str(folder / "certificate")).splitlines())
        operator, worker = (f"{prefix}/lockstep-{component}:{VERSION}" for component in ("operator", "worker"))
        expect(set(pushed) == {operator, worker}, f"pushed: {pushed}")
        trust(host, folder / "certificate")
        run("helm", "uninstall", "lockstep", "--namespace", "lockstep-system", "--ignore-not-found", "--wait")
        try:
            notes = run("helm", "install", "lockstep", "charts/lockstep", "--namespace", "lockstep-system", "--create-namespace",
                        "--set", f"image.registry={prefix}", "--wait", "--timeout=10m")
            until("all operators run what was pushed", lambda: images(*OPERATORS) == {(operator, pushed[operator])})

            job = yaml.safe_load(textwrap.dedent(re.search(r"<<'JOB'\n(.*?)\n *JOB\n", notes, re.DOTALL)[1]))
            job["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
            with jobs.running(job) as first:
                first.until_complete()  # which the ranks report; the kubelet reports the image later
                ran = lambda: images("--namespace", first.space, f"--selector=lockstep.dev/job={first.name}")
                until("the worker ran what was pushed", lambda: ran() == {(worker, pushed[worker])},
                      details=lambda: f"it ran {ran()}, pushed was {pushed}")
        finally:
            run("tests/e2e/install-lockstep")
