"""toxiproxy between ranks and their S3 server; proxy/build.sh builds it."""
import contextlib
import json
import os
import pathlib
import subprocess
import urllib.request

from cases import LIMIT
from servers import listening

HERE = pathlib.Path(__file__).resolve().parent
FOREVER = 1 << 30


def program():
    folder = subprocess.run([HERE / "proxy/build.sh", "--print-bin"], stdout=subprocess.PIPE, text=True, check=True)
    return pathlib.Path(folder.stdout.strip(), "toxiproxy")


def missing():
    """Why it cannot run here; None where it can."""
    return None if os.access(program(), os.X_OK) else "no toxiproxy here: tests/integration/store_faults/proxy/build.sh builds it"


class Toxiproxy:
    def __init__(self, api, upstream_port):
        self.api = api
        made = self.ask("POST", "proxies", {"name": "s3", "listen": "127.0.0.1:0", "upstream": f"127.0.0.1:{upstream_port}", "enabled": True})
        self.url = f"http://{made['listen']}"

    def ask(self, method, path, content=None):
        request = urllib.request.Request(f"{self.api}/{path}", method=method, data=json.dumps(content or {}).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=LIMIT) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def add(self, kind, stream="upstream", **attributes):
        self.ask("POST", "proxies/s3/toxics", {"type": kind, "stream": stream, "attributes": attributes})

    def shut(self):
        """Nobody listens."""
        self.ask("POST", "proxies/s3", {"enabled": False})

    def reset(self):
        self.ask("POST", "reset")


@contextlib.contextmanager
def toxiproxy(upstream_port):
    with listening(lambda port: [program(), "-host", "127.0.0.1", "-port", port]) as port:
        yield Toxiproxy(f"http://127.0.0.1:{port}", upstream_port)
