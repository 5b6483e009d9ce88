"""docker/push.sh against Debian's docker-registry on a loopback port: what arrives, by digest; credentials; what it refuses.

Takes the images from docker/build.sh, like images_test.py. Skipped without skopeo, docker-registry or what images_test.py needs.
"""
import json
import os
import shutil
import subprocess
import unittest

import pytest

import images_test
from cases import LIMIT
from image_registry import registry
from images_test import ROOT, VERSION, Image

PUSH = ROOT / "docker" / "push.sh"
# "user" with the password "secret" (htpasswd -B).
HTPASSWD = "user:$2b$04$LEYjiVSzI04EsTSEeWyzkecNxstw2SxxhIz0HRA6zIJEqu/LqHxi2\n"


def missing():
    for tool in ("skopeo", "docker-registry"):
        if not shutil.which(tool):
            return f"{tool} is not there; run: .ci/install"
    return images_test.missing()


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def push(*arguments, **variables):
    # Without the credentials of the user who runs the test.
    environment = {name: value for name, value in os.environ.items() if name not in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR")}
    return subprocess.run([PUSH, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False,
                          env={**environment, "HOME": "/nonexistent", **variables})


def inspect(reference):
    """The manifest that the registry has under a name and digest."""
    done = subprocess.run(["skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{reference}"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


class Push(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.archives = {component: path for component, (path, _) in images_test.build("all").items()}
        cls.registry, _ = cls.enterClassContext(registry())

    def test_the_registry_has_both_images_under_the_digests_of_their_archives(self):
        prefix = f"{self.registry}/team/training"
        done = push("--plain-http", f"{prefix}/", *self.archives.values())
        self.assertEqual(done.returncode, 0, done.stderr)
        images = {component: Image(path) for component, path in self.archives.items()}
        self.assertEqual(set(done.stdout.splitlines()),
                         {f"{prefix}/lockstep-{component}:{VERSION}@sha256:{image.digest}" for component, image in images.items()})
        for component, image in images.items():
            by_digest = inspect(f"{prefix}/lockstep-{component}@sha256:{image.digest}")
            self.assertEqual(by_digest["layers"], image.layers)
            self.assertEqual(by_digest, inspect(f"{prefix}/lockstep-{component}:{VERSION}"))

    def test_credentials_come_from_a_file(self):
        with registry(htpasswd=HTPASSWD) as (host, folder):
            file = folder / "auth.json"
            subprocess.run(["skopeo", "login", "--tls-verify=false", f"--authfile={file}", "--username=user", "--password-stdin", host],
                           input="secret", text=True, check=True, stdout=subprocess.PIPE)
            arguments = ("--plain-http", f"{host}/team", self.archives["operator"])
            refused = push(*arguments)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(f"skopeo login {host}", refused.stderr)
            done = push("--authfile", file, *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_registry_with_tls_needs_no_option(self):
        with registry(tls=True) as (host, folder):
            done = push(f"{host}/team", self.archives["operator"], SSL_CERT_FILE=str(folder / "certificate"))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_registry_without_tls_needs_the_option(self):
        done = push(f"{self.registry}/team", self.archives["operator"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("HTTP response to HTTPS client", done.stderr)

    def test_refuses_arguments_that_it_cannot_mean(self):
        for arguments, says in (((), "needs a registry"),
                                (("https://registry.example/team",), "written without a scheme"),
                                (("--plain-http", "registry.example/team"), "registry.example needs TLS"),
                                (("--plain-http", "127.evil.example/team"), "127.evil.example needs TLS"),
                                (("--authfile", "missing.json", "registry.example"), "'missing.json' is none"),
                                (("--insecure", "registry.example"), "unknown option --insecure")):
            with self.subTest(arguments):
                done = push(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(says, done.stderr)

    def test_an_archive_that_is_missing_is_named(self):
        done = push("registry.example/team", "missing.tar")
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing.tar does not exist", done.stderr)

