"""A fake-gcs-server of a test, over a folder of its own, and a server that rejects everything; tests/integration/google_storage/server/build.sh builds the
program."""
import contextlib
import http.server
import json
import os
import pathlib
import subprocess
import tempfile
import threading

from servers import built, listening


def program():
    return built("integration/google_storage/server/build.sh", "fake-gcs-server")


def missing():
    """Why it cannot run here; None where it can."""
    return None if os.access(program(), os.X_OK) else "no fake-gcs-server here: tests/integration/google_storage/server/build.sh builds it"


@contextlib.contextmanager
def google_server():
    """The folder that is the bucket, to look into, and the store's variables."""
    with tempfile.TemporaryDirectory(prefix="lockstep-gcs-") as folder:
        bucket = pathlib.Path(folder, "bucket")
        bucket.mkdir()
        with listening(lambda port: [program(), "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host", f"127.0.0.1:{port}",
                                     "-backend", "filesystem", "-filesystem-root", folder, "-log-level", "error"]) as port:
            yield bucket, {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "GOOGLE_CREDENTIALS": ""}


class Rejecting(http.server.ThreadingHTTPServer):
    """Rejects every request with `status`, and keeps who asked for what."""

    def __init__(self, status):
        self.tokens, self.paths = [], []
        rejecting = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def reject(self):
                rejecting.tokens.append(self.headers.get("Authorization", ""))
                rejecting.paths.append(self.path)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PUT = do_DELETE = reject

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


def service_account():
    """The content of a key file, with a key of its own."""
    key = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], capture_output=True, text=True,
                         check=True).stdout
    return json.dumps({"type": "service_account", "project_id": "p", "private_key_id": "k", "private_key": key, "client_id": "1",
                       "client_email": "trainer@p.iam.gserviceaccount.com", "token_uri": "https://oauth2.googleapis.com/token"})
