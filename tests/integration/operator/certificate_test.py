"""The operator's program with a certificate in a Secret that somebody else keeps: this test, in place of cert-manager.

Needs KUBECONFIG of an administrator.
"""
import base64
import contextlib
import http.client
import json
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from build_folder import BUILD
from cases import LIMIT, expect, until
from kube_api import MERGE, api
from operators import Operator, create, job, make_namespace, pods_of
from shards import Table
from workers import Worker

PROGRAM = BUILD / "operator/lockstep-operator"
SECRET = "issued"
NAME = "localhost"  # by which workers connect here
KEPT = "cannot use the certificate of the Secret; the previous one is still served"
WAITS = "waiting for the certificate of the rendezvous"
LONG = 86400  # seconds for which nothing but the first certificate is served


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=LIMIT)


class Authority:
    """All bear one name, as those do that cert-manager renews."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder = folder
        openssl("req", "-x509", *self.new_key("ca"), "-subj", "/CN=authority", "-days", "2", "-addext", "keyUsage=critical,keyCertSign")

    def new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{self.folder}/{name}.key", "-out", f"{self.folder}/{name}.crt")

    def issue(self, name=NAME):
        """What cert-manager writes."""
        ca, request, certificate = (f"{self.folder}/{file}" for file in ("ca", "tls.crt", "issued.crt"))
        openssl("req", "-new", *self.new_key("tls"), "-subj", "/", "-addext", f"subjectAltName=critical,DNS:{name}")
        openssl("x509", "-req", "-in", request, "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-copy_extensions", "copy", "-days", "1", "-out", certificate)
        files = {"tls.crt": "issued.crt", "tls.key": "tls.key", "ca.crt": "ca.crt"}
        return {key: (self.folder / file).read_text() for key, file in files.items()}


@pytest.fixture
def authorities(tmp_path):
    return Authority(tmp_path / "one"), Authority(tmp_path / "other")


def put(namespace, data):
    path = f"/api/v1/namespaces/{namespace}/secrets"
    data = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    status, answer = api().request("PATCH", f"{path}/{SECRET}", {"data": data}, MERGE)
    if status == 404:
        status, answer = api().request("POST", path, {"metadata": {"name": SECRET}, "type": "Opaque", "data": data})
    expect(status in (200, 201), answer)


def version(namespace):
    return api().request("GET", f"/api/v1/namespaces/{namespace}/secrets/{SECRET}")[1]["metadata"]["resourceVersion"]


def authorities_of(namespace, name):
    return api().request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}-config")[1].get("data", {}).get("ca.crt")


class Member(Worker):
    """The one pod of the job `a`, with the authorities that it found at its start. Within a `with` it speaks on the connection that it began with."""

    def __init__(self, namespace, operator):
        self.namespace, self.operator = namespace, operator
        created = create(api(), namespace, job("a", 1, rendezvous={"heartbeatTimeoutSeconds": 3600}))
        pod, = until("its pod", lambda: pods_of(api(), namespace, "a"), details=operator.text)
        first = until("its configuration", self.authorities, details=operator.text)
        super().__init__(namespace, created, pod, self.trusting(first))
        self.beat(operator)
        self.kept = self.connect(first)
        self.over, self.beats, self.broken = threading.Event(), 0, None
        self.speaker = threading.Thread(target=self.speak)

    def __enter__(self):
        self.speaker.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.speaker.join(LIMIT)
        self.kept.close()

    def speak(self):
        try:
            while True:
                self.expect_heard(self.kept)
                self.beats += 1
                if self.over.wait(1):
                    return
        except Exception as error:  # for the thread of the test
            self.broken = error

    def expect_kept(self):
        """The connection, and the round."""
        heard = self.beats
        until("it is heard twice more", lambda: self.broken or self.beats > heard + 1)
        expect(not self.broken, f"{self.broken}\n{self.operator.text()}")

    def authorities(self):
        """As the kubelet brings them to the pod."""
        return authorities_of(self.namespace, "a")

    @staticmethod
    def trusting(authorities):
        return ssl.create_default_context(cadata=authorities)

    def connect(self, authorities):
        port = self.operator.await_record("leading")["rendezvous_port"]
        connection = http.client.HTTPSConnection(NAME, port, timeout=LIMIT, context=self.trusting(authorities))
        connection.connect()
        connection.auto_open = 0  # an error where it is broken
        return connection

    def expect_heard(self, connection):
        """In its round."""
        connection.request("POST", "/v1/heartbeat", json.dumps(self.place), {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        expect(answer.status == 200, f"{answer.status} {text}\n{self.operator.text()}")

    def served_to(self, authorities):
        """The certificate, or None where a client with these authorities refuses it; who does not may speak."""
        try:
            connection = self.connect(authorities)
        except ssl.SSLCertVerificationError:
            return None
        with contextlib.closing(connection):
            self.expect_heard(connection)
            return ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(binary_form=True))


def operator_of(namespace, overlap, *flags, **options):
    return Operator(PROGRAM, f"--namespace={namespace}", f"--watch-namespaces={namespace}", f"--rendezvous-url=https://{NAME}:1",
                    f"--certificate-secret={SECRET}", f"--certificate-overlap-seconds={overlap}", *flags, **options)


def await_problem(operator, message, problem):
    found = until(problem, lambda: [record for record in operator.records(message) if problem in record.get("reason", record.get("error", ""))],
                  details=operator.text)
    expect(len(found) == 1, operator.text())
    return found[0]


def is_ready(operator):
    """Its status, and what it says."""
    port = operator.await_record("operator started")["health_port"]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=LIMIT) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_waits_for_the_secret_and_follows_what_it_holds(authorities):
    namespace, (one, other) = make_namespace(api(), "issued"), authorities
    with operator_of(namespace, LONG) as operator:
        expect(await_problem(operator, WAITS, "the Secret does not exist")["secret"] == f"{namespace}/{SECRET}", operator.text())
        until("it says so", lambda: is_ready(operator) == (503, f"no certificate yet: Secret {namespace}/{SECRET}: the Secret does not exist\n"))
        first = one.issue()
        put(namespace, {"tls.key": first["tls.key"]})
        await_problem(operator, WAITS, "tls.crt is missing or empty")
        expect(not operator.records("leading"), operator.text())
        put(namespace, first)
        with Member(namespace, operator) as member:
            expect(is_ready(operator) == (200, ""), operator.text())
            expect(member.authorities() == first["ca.crt"], member.authorities())
            expect(member.served_to(first["ca.crt"]) == first["tls.crt"], operator.text())

            renewed = one.issue()
            put(namespace, renewed)
            until("the renewed one is served", lambda: member.served_to(first["ca.crt"]) == renewed["tls.crt"], details=operator.text)

            for problem, bad in (("tls.key is not the key of the certificate in tls.crt", {**renewed, "tls.key": first["tls.key"]}),
                                 ("tls.crt is not for the name localhost", one.issue("elsewhere")),
                                 ("tls.crt is not accepted by a worker that trusts ca.crt", {**renewed, "ca.crt": other.issue()["ca.crt"]})):
                put(namespace, bad)
                expect(await_problem(operator, KEPT, problem)["secret"] == f"{namespace}/{SECRET}", operator.text())
                expect(member.served_to(first["ca.crt"]) == renewed["tls.crt"], operator.text())

            second = other.issue()
            put(namespace, second)
            written = version(namespace)
            until("workers are to trust both", lambda: member.authorities() == first["ca.crt"] + second["ca.crt"], details=operator.text)
            expect(member.served_to(first["ca.crt"]) == renewed["tls.crt"], "a pod that knows only the old authority is shut out")
            expect(member.served_to(second["ca.crt"]) is None, "it is served too early")
            member.expect_kept()
            expect(version(namespace) == written, "the operator has written the Secret")


def test_a_replica_that_starts_in_the_overlap_lets_workers_trust_what_the_other_one_serves(authorities):
    namespace, (one, other) = make_namespace(api(), "overlap"), authorities
    first, second = one.issue(), other.issue()
    uids = {}

    def add_jobs(count):
        for _ in range(count):
            name = f"job-{len(uids)}"
            uids[name] = create(api(), namespace, job(name, 1))["metadata"]["uid"]

    def until_trusted(what, trusted, details):
        for name in uids:
            until(f"workers of {name} are to trust {what}", lambda name=name: authorities_of(namespace, name) == trusted(name), details=details)

    def shards():
        return Table(api().request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/lockstep-leader")[1])

    put(namespace, first)
    with operator_of(namespace, LONG, "--leader-elect", pod="earlier") as earlier:
        earlier.await_record("leading")
        add_jobs(8)
        put(namespace, second)
        until_trusted("both", lambda _: first["ca.crt"] + second["ca.crt"], earlier.text)
        with operator_of(namespace, LONG, "--leader-elect", pod="later") as later:
            def text():
                return earlier.text() + later.text()
            until("each has its share", lambda: shards().is_even(2), details=text)
            add_jobs(8)
            until_trusted("both", lambda name: second["ca.crt"] + first["ca.crt"] if shards().leader_of(uids[name]).startswith("later")
                          else first["ca.crt"] + second["ca.crt"], text)
            earlier.process.terminate()
            until_trusted("the second only, as nobody serves the first", lambda _: second["ca.crt"], text)


def test_serves_the_certificate_of_another_authority_while_pods_run(authorities):
    namespace, (one, other) = make_namespace(api(), "rotated"), authorities
    first, second = one.issue(), other.issue()
    put(namespace, first)
    with operator_of(namespace, overlap=1) as operator:
        with Member(namespace, operator) as member:
            put(namespace, second)
            until("the second is served to who reads the authorities again",
                  lambda: member.served_to(member.authorities()) == second["tls.crt"], details=operator.text)
            expect(member.served_to(first["ca.crt"]) is None, "only the second is served now")
            until("the first authority goes", lambda: member.authorities() == second["ca.crt"], details=operator.text)
            member.expect_kept()
            expect([pod["metadata"]["name"] for pod in pods_of(api(), namespace, "a")] == ["a-worker-0"], "the pod was replaced")
