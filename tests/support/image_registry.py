"""A container registry for tests: Debian's docker-registry, on a port that it gets from the system, ended with its context."""
import contextlib
import json
import pathlib
import re
import subprocess
import tempfile

from cases import LIMIT, until


@contextlib.contextmanager
def registry(address="127.0.0.1", tls=False, htpasswd=None):
    """(HOST:PORT, its folder). With tls the folder has `certificate`, which signs itself."""
    with tempfile.TemporaryDirectory(prefix="lockstep-registry-") as name:
        folder = pathlib.Path(name)
        config = {"version": 0.1, "log": {"level": "info"}, "http": {"addr": f"{address}:0"},
                  "storage": {"filesystem": {"rootdirectory": f"{folder}/images"}}}
        if tls:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=registry",
                            "-addext", f"subjectAltName=IP:{address}", "-keyout", folder / "key", "-out", folder / "certificate"],
                           check=True, capture_output=True)
            config["http"]["tls"] = {"certificate": f"{folder}/certificate", "key": f"{folder}/key"}
        if htpasswd:
            (folder / "htpasswd").write_text(htpasswd)
            config["auth"] = {"htpasswd": {"realm": "lockstep", "path": f"{folder}/htpasswd"}}
        (folder / "config.json").write_text(json.dumps(config))  # JSON is YAML
        log = folder / "log"
        with log.open("w") as output:
            server = subprocess.Popen(["docker-registry", "serve", folder / "config.json"], stdout=output, stderr=output)
        try:
            yield f"{address}:{port_of(server, log)}", folder
        finally:
            server.terminate()
            server.wait(timeout=LIMIT)


def port_of(server, log):
    """It writes into its log which port it has."""
    def reported():
        if server.poll() is not None:
            raise AssertionError(f"docker-registry has ended: {log.read_text()}")
        return re.search(r"listening on [\d.]+:(\d+)", log.read_text())
    return until("docker-registry listens", reported, details=log.read_text).group(1)
