#!/usr/bin/env python3
"""The images come from a registry: docker/push.sh brings them there, `helm install` with image.registry and a job take them from there.

registry_test.py [NAME…]    all cases, or those named; exits 77, which ctest counts as skipped, without a cluster
The registry is docker-registry on this machine's address in the cluster's network, with TLS.
"""
import os
import pathlib
import subprocess
import urllib.parse

import jobs  # first: it finds tests/support
from image_registry import registry
from jobs import expect, until

INSTALL = jobs.ROOT / "tests" / "e2e" / "install-lockstep"
PUSH = jobs.ROOT / "docker" / "push.sh"
VERSION = jobs.IMAGE.rpartition(":")[2]


def trust(host, certificate):
    """Lets the nodes pull from the registry; containerd reads this at each pull."""
    folder = pathlib.Path(os.environ["LOCKSTEP_CLUSTER"], "registries", host)
    folder.mkdir(parents=True)
    (folder / "certificate").write_bytes(certificate.read_bytes())
    (folder / "hosts.toml").write_text(f'server = "https://{host}"\n[host."https://{host}"]\n  ca = "{folder}/certificate"\n')


def digests(*selection):
    """The images that the containers of these pods run, by digest."""
    return {status["imageID"] for pod in jobs.get(*selection, "pods")["items"] for status in pod["status"].get("containerStatuses", [])}


def chart_and_job_take_what_was_pushed():
    network = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"]).hostname.rpartition(".")[0]
    address = f"{network}.254"  # the machine's: tests/cluster/README.md
    with registry(address, tls=True) as (host, folder):
        prefix = f"{host}/team"
        done = subprocess.run([PUSH, prefix], env={**os.environ, "SSL_CERT_FILE": str(folder / "certificate")}, check=True, timeout=300,
                              stdout=subprocess.PIPE, text=True)
        pushed = dict(line.split("@") for line in done.stdout.splitlines())
        expect(set(pushed) == {f"{prefix}/lockstep-{c}:{VERSION}" for c in ("operator", "worker")}, f"pushed: {done.stdout}")
        trust(host, folder / "certificate")
        try:
            subprocess.run([INSTALL, "--set", f"image.registry={prefix}"], check=True, timeout=300)
            wanted = {f"{prefix}/lockstep-operator@{pushed[f'{prefix}/lockstep-operator:{VERSION}']}"}
            operators = ("--namespace", "lockstep-system", "--selector=app.kubernetes.io/component=operator")
            until("all operators run what was pushed", lambda: digests(*operators) == wanted, 60)

            image = f"{prefix}/lockstep-worker:{VERSION}"
            with jobs.running(jobs.manifest("pulled", container={"image": image})) as job:
                job.until_complete(300)
                expect(digests("--namespace", job.space, f"--selector=lockstep.dev/job={job.name}") ==
                       {f"{prefix}/lockstep-worker@{pushed[image]}"}, "the worker runs another image")
        finally:
            subprocess.run([INSTALL], check=True, timeout=300)


CASES = [chart_and_job_take_what_was_pushed]

if __name__ == "__main__":
    jobs.main(CASES)
