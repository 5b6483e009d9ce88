"""checkpoint.deleteWithJob on a real API server: the pod that removes the checkpoints, and every way in which a deletion comes to its end.

Needs KUBECONFIG of an administrator.
Nobody runs the pods: the cases say what becomes of them.
"""

from build_folder import BUILD
from cases import expect, until
from kube_api import MERGE, api
from operators import JOBS, Operator, create, job, kubeconfig_for, make_namespace, pods_of

PROGRAM = BUILD / "operator/lockstep-operator"
URI = "s3://bucket/a"


class Case:
    """The job `a` in a namespace of its own, as it is when it has trained and no operator runs."""

    def __init__(self, prefix, system=None, **checkpoint):
        """`system`: where the operator is, with the rights for all namespaces; else in the job's namespace, for that one."""
        self.namespace = make_namespace(api(), prefix)
        self.flags = [f"--watch-namespaces={self.namespace}", *([f"--namespace={system}"] if system else [])]
        self.kubeconfig = kubeconfig_for(*self.flags, whole_cluster=system is not None)
        with self.operator() as operator:
            document = job("a", 2, checkpoint={"uri": URI, "deleteWithJob": True, **checkpoint})
            self.uid = create(api(), self.namespace, document)["metadata"]["uid"]
            until("its pods", lambda: len(self.workers()) == 2, details=operator.text)
        self.patch_status({"rendezvous": {"round": 1}})

    def operator(self):
        return Operator(PROGRAM, *self.flags, kubeconfig=self.kubeconfig)

    def path(self):
        return JOBS.format(self.namespace) + "/a"

    def job(self):
        status, answer = api().request("GET", self.path())
        expect(status in (200, 404), answer)
        return answer if status == 200 else None

    def patch_status(self, status):
        code, answer = api().request("PATCH", self.path() + "/status", {"status": status}, MERGE)
        expect(code == 200, answer)

    def delete(self, propagation="Background"):
        code, answer = api().request("DELETE", self.path(), {"propagationPolicy": propagation})
        expect(code == 200, answer)

    def workers(self):
        return [pod for pod in pods_of(api(), self.namespace, "a") if "worker" in pod["metadata"]["name"]]

    def removals(self):
        return [pod for pod in pods_of(api(), self.namespace, "a") if pod["metadata"]["name"] == f"a-removal-{self.uid}"]

    def until_removal(self, operator, other_than=None):
        pod, = until("the pod that removes", lambda: [p for p in self.removals() if p["metadata"]["uid"] != other_than], details=operator.text)
        expect(self.job() and not self.workers(), "it comes between the workers' end and the job's")
        return pod

    def end(self, pod, phase, code, message=""):
        ended = {"name": "trainer", "image": "", "imageID": "", "ready": False, "restartCount": 0,
                 "state": {"terminated": {"exitCode": code, "message": message}}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        status, answer = api().request("PATCH", path, {"status": {"phase": phase, "containerStatuses": [ended]}}, MERGE)
        expect(status == 200, answer)

    def events(self):
        items = api().request("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")[1]["items"]
        return {event["reason"]: event["note"] for event in items}

    def until_gone(self, operator):
        until("the job is gone", lambda: self.job() is None, details=operator.text)
        until("and its pods", lambda: not pods_of(api(), self.namespace, "a"), details=operator.text)


def test_removes_them_before_the_job_goes_through_failures_and_new_operators():
    case = Case("removal")
    case.delete()
    with case.operator() as operator:
        pod = case.until_removal(operator)
        container, = pod["spec"]["containers"]
        expect(container["command"] == ["lockstep", "checkpoint", "rm", URI, "--all-of-job", case.uid, "--force"], container)
        expect("ownerReferences" not in pod["metadata"], pod["metadata"])
        case.end(pod, "Failed", 4, "the store is away")
        note = until("an event tells", lambda: case.events().get("CheckpointRemovalFailed"), details=operator.text)
        expect("the store is away" in note, note)
    with case.operator() as operator:
        second = case.until_removal(operator, other_than=pod["metadata"]["uid"])
    with case.operator() as operator:
        operator.await_record("leading")
        expect(case.job() is not None, "it must wait")
        case.end(second, "Succeeded", 0)
        case.until_gone(operator)
        until("an event tells", lambda: case.events().get("CheckpointsRemoved"), details=operator.text)


def test_goes_without_a_word_where_the_field_is_false():
    case = Case("kept", deleteWithJob=False)
    case.delete()
    with case.operator() as operator:
        case.until_gone(operator)
        expect("start removal" not in operator.text(), operator.text())


def test_may_be_called_off():
    case = Case("off")
    case.delete()
    with case.operator() as operator:
        case.until_removal(operator)
        status, answer = api().request("PATCH", case.path(), {"spec": {"checkpoint": {"deleteWithJob": False}}}, MERGE)
        expect(status == 200, answer)
        case.until_gone(operator)


def test_gives_up_after_ten_minutes_and_says_what_is_left():
    case = Case("late")
    case.delete()
    with case.operator() as operator:
        case.until_removal(operator)
        condition, = until("the condition", lambda: [c for c in case.job()["status"].get("conditions", []) if c["type"] == "CheckpointsRemoved"],
                           details=operator.text)
        expect((condition["status"], condition["reason"]) == ("False", "Removing") and URI in condition["message"], condition)
        conditions = case.job()["status"]["conditions"]
        for entry in conditions:
            if entry["type"] == "CheckpointsRemoved":
                entry["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        case.patch_status({"conditions": conditions})
        case.until_gone(operator)
        note = until("an event tells", lambda: case.events().get("CheckpointsLeft"), details=operator.text)
        expect(f"lockstep checkpoint rm {URI} --all-of-job {case.uid}" in note, note)


def test_outlives_a_deletion_that_takes_dependents_first():
    case = Case("foreground")
    case.delete("Foreground")
    with case.operator() as operator:
        pod = case.until_removal(operator)
        config = f"/api/v1/namespaces/{case.namespace}/configmaps/a-config"
        until("the garbage collector has been there", lambda: api().request("GET", config)[0] == 404, details=operator.text)
        expect([p["metadata"]["uid"] for p in case.removals()] == [pod["metadata"]["uid"]], "the pod was collected, too")
        case.end(pod, "Succeeded", 0)

        def is_gone():
            # Where the garbage collector changes the job at that very moment, what is removed is removed once more.
            for again in case.removals():
                if again["metadata"]["uid"] != pod["metadata"]["uid"] and again["status"]["phase"] == "Pending":
                    case.end(again, "Succeeded", 0)
            return case.job() is None
        until("the job is gone", is_gone, details=operator.text)
        case.until_gone(operator)


def test_does_not_hold_a_namespace():
    case = Case("ending", make_namespace(api(), "system"))  # with the namespace go the account and the roles in it
    status, answer = api().request("DELETE", f"/api/v1/namespaces/{case.namespace}")
    expect(status == 200, answer)
    until("the job is being deleted", lambda: "deletionTimestamp" in case.job()["metadata"])
    until("its pods are gone", lambda: not pods_of(api(), case.namespace, "a"))
    with case.operator() as operator:
        until("the namespace is gone", lambda: api().request("GET", f"/api/v1/namespaces/{case.namespace}")[0] == 404, details=operator.text)
        expect("what this job stored remains" in operator.text(), operator.text())
