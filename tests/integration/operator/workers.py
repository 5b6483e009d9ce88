"""Workers that only speak to the operator."""
import contextlib
import json
import urllib.error
import urllib.request

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
        self.scheme = "https" if trusted else "http"
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted))

    def beat(self, operator, host="localhost", **content):
        """The operator knows of the pod with its next watch event."""
        port = operator.await_record("leading")["rendezvous_port"]

        def is_taken():
            request = urllib.request.Request(f"{self.scheme}://{host}:{port}/v1/heartbeat", json.dumps({**self.place, **content}).encode(),
                                             {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
            with contextlib.suppress(urllib.error.HTTPError), self.opener.open(request, timeout=LIMIT) as answer:
                return answer.status == 200
        until("a heartbeat is taken", is_taken, details=operator.text)
