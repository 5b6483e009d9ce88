"""The API server behind an address of its own at which requests fail as a test says."""
import http.client
import http.server
import json
import pathlib
import socket
import tempfile
import threading

from kube_api import Api, UnixConnection

HANG = "hang"  # what `fault` returns for a request that never gets an answer


class FailingApi:
    """Of whom the kubeconfig is. `fault(method, path)`: None passes a request on, a number is the status of its answer, HANG leaves it without one."""

    def __init__(self, kubeconfig, address="127.0.0.1"):
        self.fault = lambda method, path: None
        self.over = threading.Event()
        self.folder = tempfile.TemporaryDirectory()
        self.api = Api(self.folder.name, kubeconfig)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                outer.answer(self)
            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.server = Server((address, 0), Handler)
        host = f"[{address}]" if ":" in address else address
        self.server.daemon_threads = True
        self.kubeconfig = str(pathlib.Path(self.folder.name, "config"))
        pathlib.Path(self.kubeconfig).write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{self.server.server_port}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}))

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.api.close()
        self.folder.cleanup()

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        fault = self.fault(request.command, request.path)
        if fault == HANG:
            self.over.wait()
            request.close_connection = True
        elif fault:
            self.refuse(request, fault)
        else:
            self.forward(request, body)

    @staticmethod
    def refuse(request, status):
        text = json.dumps({"kind": "Status", "apiVersion": "v1", "code": status, "message": "as the test says"}).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text)

    def forward(self, request, body):
        connection = UnixConnection(self.api.path)
        connection.request(request.command, request.path, body or None,
                           {name: request.headers[name] for name in ("Content-Type", "Accept") if name in request.headers})
        with connection.getresponse() as response:
            request.send_response(response.status)
            request.send_header("Content-Type", response.headers["Content-Type"])
            request.send_header("Transfer-Encoding", "chunked")
            request.end_headers()
            try:
                while chunk := response.read1(65536):
                    request.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                request.wfile.write(b"0\r\n\r\n")
            except (OSError, http.client.HTTPException):  # the operator has ended the watch, or the case ends
                request.close_connection = True
        connection.close()
