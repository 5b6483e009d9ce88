"""A second tenant with every right in its own namespace plays against a job of another: nothing of that job changes, and each attempt
is one line in the operator's log."""
import atexit
import collections
import functools
import http.client
import json
import os
import socket
import ssl

import jobs
from cases import LIMIT, expect, until

TENANT = f"aaa-{os.getpid()}"  # before the job's namespace in every order by name
ACCOUNT = f"--as=system:serviceaccount:{TENANT}:tenant"
SYSTEM = "lockstep-system"
HOST, PORT = f"lockstep-rendezvous.{SYSTEM}.svc", 29400
JOB_KIND = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob"}
# A kind that does not exist: the garbage collector cannot look the owner up, so it leaves the object alone.
UNKNOWN_KIND = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob"}
COMPLETED = 2  # LeaveReason::kCompleted
HELD = "tenant.example/held"
WAITS = "trap 'exit 0' TERM; while :; do sleep 1; done"
REFUSED, IGNORED = "a message to the rendezvous was refused", "ignored an object whose owner reference"


def tenant(*arguments, **options):
    return jobs.kubectl(ACCOUNT, "--namespace", TENANT, *arguments, **options)


@functools.cache
def account():
    """The tenant: all rights, and all of them in its own namespace."""
    jobs.kubectl("create", "namespace", TENANT)
    atexit.register(jobs.kubectl, "delete", "namespace", TENANT, "--wait=false")
    jobs.kubectl("--namespace", TENANT, "create", "serviceaccount", "tenant")
    jobs.kubectl("--namespace", TENANT, "create", "role", "everything", "--verb=*", "--resource=*.*")
    jobs.kubectl("--namespace", TENANT, "create", "rolebinding", "tenant", "--role=everything", f"--serviceaccount={TENANT}:tenant")
    until("its default account", lambda: "default" in jobs.kubectl("--namespace", TENANT, "get", "serviceaccounts"))


def forged(victim, name, slot, owner):
    """Metadata as of an object of the victim, in the tenant's namespace."""
    return {"name": name, "namespace": TENANT,
            "labels": {"app.kubernetes.io/name": "lockstep-worker", "app.kubernetes.io/managed-by": "lockstep",
                       "lockstep.dev/job": victim["metadata"]["name"], "lockstep.dev/slot": str(slot)},
            "ownerReferences": [{**owner, "name": victim["metadata"]["name"], "uid": victim["metadata"]["uid"], "controller": True}]}


def make(manifest):
    made = json.loads(tenant("create", "--filename=-", "--output=json", stdin=json.dumps(manifest)))
    return made["metadata"]["uid"]


def make_pod(victim, name, slot, command, owner, finalizers=()):
    metadata = {**forged(victim, name, slot, owner), "finalizers": list(finalizers)}
    container = {"name": "trainer", "image": "localhost/busybox:1", "command": ["sh", "-c", command]}
    return make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                 "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}})


def phase_of(pod):
    return jobs.get("--namespace", TENANT, "pod", pod)["status"]["phase"]


def token_of(pod, uid):
    return tenant("create", "token", "default", "--audience=lockstep", "--bound-object-kind=Pod", f"--bound-object-name={pod}",
                  f"--bound-object-uid={uid}").strip()


class Rendezvous:
    """The operator's service, over the HTTPS that workers speak."""

    def __init__(self, job):
        config = json.loads(job.kubectl("get", "configmap", f"{job.name}-config", "--output=json"))
        self.trusted = ssl.create_default_context(cadata=config["data"]["ca.crt"])
        self.address = jobs.leader_of(job)["status"]["podIP"]

    def send(self, token, path, message):
        """The status and the text of the answer."""
        with socket.create_connection((self.address, PORT), timeout=LIMIT) as plain, \
                self.trusted.wrap_socket(plain, server_hostname=HOST) as encrypted:
            connection = http.client.HTTPConnection(HOST)
            connection.sock = encrypted
            connection.request("POST", path, json.dumps(message),
                               {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()


def attempts_of(identity, member):
    """Each kind of message that a worker sends, with what would harm the job."""
    said = {"job": identity, "member": member, "round": 1}
    return {"/v1/join": {"job": identity, "member": member, "address": "127.0.0.1", "nproc": 1, "storePort": 29500, "step": 1000},
            "/v1/watch": said,
            "/v1/heartbeat": {**said, "world": 2, "progress": {"round": 1, "step": 1000}},
            "/v1/broken": {**said, "reason": "the tenant says so"},
            "/v1/leave": {**said, "reason": COMPLETED}}


def operator_lines(text):
    """The records of all operators' logs with that message."""
    records = []
    for pod in jobs.get("--namespace", SYSTEM, "pods", "--selector=app.kubernetes.io/name=lockstep")["items"]:
        lines = jobs.kubectl("--namespace", SYSTEM, "logs", pod["metadata"]["name"], "--tail=-1").splitlines()
        records += [json.loads(line) for line in lines if text in line]
    return records


def state_of(job):
    """What the tenant must not change, of a job that trains."""
    status = job.status()
    conditions = {c["type"]: (c["status"], c.get("reason")) for c in status["conditions"]}
    return {"pods": job.uids(), "round": status["rendezvous"], "restarts": status.get("restarts", []), "conditions": conditions}


def test_another_tenant_changes_nothing_of_a_job():
    account()
    with jobs.running(jobs.manifest("victim", replicas=2, epochs=jobs.LONG, model=jobs.SLOW), with_ledger=True) as job:
        job.until_step(20)
        job.until("the status says that it trains", lambda: job.status().get("state") == "Running" and job.status()["readyReplicas"] == 2)
        victim, before = job.get(), state_of(job)
        objects = forge_objects(victim)
        refusals = send_messages(job, victim, objects)
        until("each object is in the log", lambda: {r["object_uid"] for r in operator_lines(IGNORED)} >= set(objects.values()))
        expect(phase_of("ends") == "Succeeded" and phase_of("runs") == "Running", "the tenant's pods are not as the test wants them")
        job.until_step(jobs.ledger.newest_commit(job.ledger) + 50)
        expect(state_of(job) == before, f"was {before}, is {state_of(job)}")
        job.complete_this_epoch()
        job.expect_exactly_once()
        lines = collections.Counter(r["object_uid"] for r in operator_lines(IGNORED) if r["job"] == f"{job.space}/{job.name}")
        expect(lines == collections.Counter(objects.values()), f"lines {lines}, objects {objects}")
        lines = collections.Counter((r["path"], r["pod_uid"]) for r in operator_lines(REFUSED) if r["job_uid"] == victim["metadata"]["uid"])
        expect(lines == collections.Counter(refusals), f"lines {lines}, refusals {refusals}")
        job.kubectl("delete", "dtj", job.name, f"--timeout={LIMIT}s")  # while the forged objects are still there
    tenant("patch", "pod", "exact", "--type=merge", "--patch", json.dumps({"metadata": {"finalizers": None}}))


def forge_objects(victim):
    """name -> uid of objects that have the victim's labels and uid."""
    made = {"runs": make_pod(victim, "runs", 0, WAITS, UNKNOWN_KIND),
            "ends": make_pod(victim, "ends", 1, "true", UNKNOWN_KIND),
            "config": make({"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.json": "{}"},
                            "metadata": forged(victim, f"{victim['metadata']['name']}-config", 0, UNKNOWN_KIND)})}
    until("a pod runs and one has ended", lambda: (phase_of("runs"), phase_of("ends")) == ("Running", "Succeeded"),
          details=lambda: tenant("describe", "pods"))
    # Right in all but the namespace. The garbage collector deletes it; the finalizer keeps it. Last, as its token is good for a minute more.
    made["exact"] = make_pod(victim, "exact", 0, WAITS, JOB_KIND, [HELD])
    return made


def send_messages(job, victim, objects):
    """Sends all that could harm, and returns (path, uid of the pod in the message) of each message that was refused for the first time."""
    uid = victim["metadata"]["uid"]
    own = job.pods()[0]["metadata"]
    rendezvous = Rendezvous(job)
    refusals = set()
    for pod in ("exact", "runs"):
        token = token_of(pod, objects[pod])
        for space in (job.space, TENANT):
            identity = {"namespace": space, "name": job.name, "uid": uid}
            for member in ({"pod": pod, "podUid": objects[pod], "slot": 0, "incarnation": "tenant"},
                           {"pod": own["name"], "podUid": own["uid"], "slot": 0, "incarnation": "tenant"}):
                for path, message in attempts_of(identity, member).items():
                    code, text = rendezvous.send(token, path, message)
                    expect(code == 403, f"{path} of {pod} as {member['pod']} for {identity}: {code} {text}")
                    refusals.add((path, member["podUid"]))
    return refusals
