"""Workers that only speak to the operator."""
import contextlib
import http.client
import json
import select
import socket
import ssl

from cases import LIMIT, expect, until
from kube_api import api


class Worker:
    """Speaks for the one pod of a job, which nobody runs; over HTTPS where it is given whom to trust."""

    def __init__(self, namespace, created, pod, trusted=None):
        identity = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        account = pod["spec"]["serviceAccountName"]
        status, answer = api().request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", {
            "spec": {"audiences": ["lockstep"], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **identity}}})
        expect(status == 201, answer)
        self.token = answer["status"]["token"]
        self.place = {"job": {"namespace": namespace, "name": created["metadata"]["name"], "uid": created["metadata"]["uid"]},
                      "member": {"pod": identity["name"], "podUid": identity["uid"], "slot": 0, "incarnation": "1"},
                      "round": 1, "world": 1, "nproc": 1}
        self.trusted = trusted

    def begin(self, address, path, message):
        """Sends it, and returns the connection on which the answer comes."""
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        connection = (http.client.HTTPSConnection(host, int(port), timeout=LIMIT, context=self.trusted) if self.trusted
                      else http.client.HTTPConnection(host, int(port), timeout=LIMIT))
        connection.request("POST", path, json.dumps(message), {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
        return connection

    def send(self, address, path, message):
        """Status and JSON of the answer."""
        with contextlib.closing(self.begin(address, path, message)) as connection, connection.getresponse() as answer:
            return answer.status, json.loads(answer.read())

    def beat(self, operator, host="localhost", **content):
        """The operator knows of the pod with its next watch event."""
        address = f"{host}:{operator.await_record('leading')['rendezvous_port']}"
        until("a heartbeat is taken", lambda: self.beat_at(address, **content) == 200, details=operator.text)

    def beat_at(self, address, **content):
        """The status; of the host that the replica at this address names, where it names one. None: it cannot be reached."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, answer = self.send(address, "/v1/heartbeat", {**self.place, **content})
            return self.beat_at(answer["host"], **content) if status == 421 else status
        return None

    def watch(self, address):
        """A long poll of the round."""
        return Watch(self.begin(address, "/v1/watch", {name: self.place[name] for name in ("job", "member", "round")}))


class Watch:
    def __init__(self, connection):
        self.connection = connection

    def is_cut(self):
        """Whether the other side has ended the connection without an answer."""
        if not select.select([self.connection.sock], [], [], 0)[0]:
            return False
        try:
            return self.connection.sock.recv(1, socket.MSG_PEEK) == b""
        except (ConnectionResetError, ssl.SSLError):
            return True
