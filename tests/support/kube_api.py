"""The API server through `kubectl proxy` on a Unix socket: any kubeconfig, and no process is started for a request."""
import atexit
import contextlib
import functools
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile

from cases import ENDS_WITH_US, LIMIT, until

KUBECTL = os.environ.get("KUBECTL", "kubectl")
MERGE = "application/merge-patch+json"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=LIMIT)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    """As the user of `kubeconfig`, or of $KUBECONFIG."""

    def __init__(self, folder, kubeconfig=None):
        self.path = os.path.join(folder, "api.sock")
        self.proxy = subprocess.Popen(
            [*ENDS_WITH_US, KUBECTL, "proxy", "--unix-socket", self.path], env={**os.environ, **({"KUBECONFIG": kubeconfig} if kubeconfig else {})},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until("kubectl proxy listens", self._listens, poll=0.02)

    def _listens(self):
        """Its socket is there before it does."""
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError), contextlib.closing(UnixConnection(self.path)) as connection:
            connection.connect()
            return True
        return False

    def close(self):
        self.proxy.terminate()
        self.proxy.wait(LIMIT)

    def request(self, method, path, body=None, content_type="application/json", accept="application/json"):
        connection = UnixConnection(self.path)
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Content-Type": content_type, "Accept": accept})
        response = connection.getresponse()
        text = response.read()  # of a path that it does not know, in no JSON
        answer = json.loads(text) if response.headers.get_content_subtype() == "json" else {"message": text.decode()}
        connection.close()
        return response.status, answer

    def watch(self, path, is_enough):
        """Reads watch events until `is_enough(event)`."""
        connection = UnixConnection(self.path)
        connection.request("GET", path)
        with connection.getresponse() as response:
            for line in response:
                if is_enough(json.loads(line)):
                    connection.close()
                    return
        raise TimeoutError(f"the watch of {path} ended")


@functools.cache
def api():
    """That of KUBECONFIG, until this process ends."""
    folder = tempfile.mkdtemp(prefix="lockstep-api-")
    atexit.register(shutil.rmtree, folder)
    opened = Api(folder)
    atexit.register(opened.close)
    return opened
