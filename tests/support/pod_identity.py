"""A stand-in for the agent of EKS Pod Identity, which runs on each node and provides keys to pods that present their token."""
import http.server
import json
import pathlib
import threading


class Agent:
    """Runs until `stop`. It answers the next `failures` requests with 500."""

    def __init__(self, key, secret, folder):
        self.failures = 0
        self._token = pathlib.Path(folder, "token")
        self._token.write_text("the token of the pod")
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                known = self.headers.get("Authorization") == agent._token.read_text()
                answer = json.dumps({"AccessKeyId": key, "SecretAccessKey": secret, "Token": "", "Expiration": "2999-01-01T00:00:00Z"}).encode()
                is_away = agent.failures > 0
                agent.failures -= is_away
                self.send_response(500 if is_away else 200 if known else 401)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def environment(self):
        """What EKS sets in such pods."""
        return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{self._server.server_port}/v1/credentials",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self._token)}

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
