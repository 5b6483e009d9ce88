"""An Azurite of a test, over a folder of its own; tests/integration/azure_storage/server/install.sh brings the program."""
import base64
import contextlib
import hashlib
import hmac
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
import xml.etree.ElementTree

from cases import ENDS_WITH_US, until
from servers import built

ACCOUNT = "lockstep"
KEY = base64.b64encode(b"the key of the account of the tests").decode()
NONE = {name: "" for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN")}


def program():
    return built("integration/azure_storage/server/install.sh", "azurite-blob")


def missing():
    """Why it cannot run here; None where it can."""
    return None if os.access(program(), os.X_OK) else "no Azurite here: tests/integration/azure_storage/server/install.sh brings it"


def shared_access(permissions):
    """A signature of the account for these permissions, as Azure's tools print it."""
    fields = {"sv": "2019-12-12", "ss": "b", "srt": "sco", "sp": permissions, "st": "2020-01-01T00:00:00Z", "se": "2100-01-01T00:00:00Z"}
    signed = "\n".join([ACCOUNT, *(fields[name] for name in ("sp", "ss", "srt", "st", "se")), "", "", fields["sv"], ""])
    signature = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    return urllib.parse.urlencode({**fields, "sig": base64.b64encode(signature).decode()})


class Store:
    """An Azurite with the container "box"."""

    def __init__(self, port):
        self.endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"

    def ask(self, method, path, query="", content=None, headers=()):
        url = f"{self.endpoint}/{path}?{query + '&' if query else ''}{shared_access('rwdlac')}"
        request = urllib.request.Request(url, data=content, method=method, headers=dict(headers))
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return answer.read()

    def upload(self, name, content):
        self.ask("PUT", f"box/{name}", content=content, headers={"x-ms-blob-type": "BlockBlob"})

    def names(self):
        listing = xml.etree.ElementTree.fromstring(self.ask("GET", "box", "restype=container&comp=list"))
        return [name.text for name in listing.iterfind("./Blobs/Blob/Name")]

    def download(self, folder):
        """The whole container, as files."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in self.names():
            if name.endswith("/"):
                continue
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.ask("GET", f"box/{name}"))
        return pathlib.Path(folder)

    def variables(self, access=f"AccountKey={KEY}", endpoint=None):
        return {**NONE, "AZURE_STORAGE_CONNECTION_STRING": f"AccountName={ACCOUNT};{access};BlobEndpoint={endpoint or self.endpoint};"}


@contextlib.contextmanager
def azure_server():
    with tempfile.TemporaryDirectory(prefix="lockstep-azure-") as folder:
        log = pathlib.Path(folder, "log")
        with open(log, "wb") as output:
            server = subprocess.Popen(
                [*ENDS_WITH_US, program(), "--blobHost", "127.0.0.1", "--blobPort", "0", "--location", folder, "--skipApiVersionCheck",
                 "--disableTelemetry"], stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"})
        try:
            port = until("the server listens", lambda: re.search(r"successfully listens on http://127\.0\.0\.1:(\d+)", log.read_text()))
            found = Store(int(port.group(1)))
            found.ask("PUT", "box", "restype=container")
            yield found
        finally:
            server.kill()
            server.wait()
