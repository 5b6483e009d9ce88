"""The rights that the chart gives the operator are those that it needs, one for one: a release makes every request that it can make, and the
API server's audit log has which of its rights it has used. What is missing fails every suite of this folder: conftest.py.

Needs KUBECONFIG of an administrator.
"""
import base64
import json
import ssl

import pytest

import definitions
import rights
from build_folder import BUILD
from cases import LIMIT, expect, until
from kube_api import MERGE, api
from operators import JOBS, Operator, create, job, make_namespace, pods_of, release_of, scraped
from workers import Worker

PROGRAM = BUILD / "operator/lockstep-operator"
NAMESPACES = "/apis/{}/namespaces/{}/{}"
GANGS = {"coscheduling": ("Coscheduling", "scheduling.x-k8s.io/v1alpha1"), "volcano": ("Volcano", "scheduling.volcano.sh/v1beta1"),
         "workload": ("Workload", "scheduling.k8s.io/v1alpha2")}
OBJECTS = ["/api/v1/namespaces/{}/services/a", "/api/v1/namespaces/{}/configmaps/a-config", "/api/v1/namespaces/{}/serviceaccounts/a-worker",
           "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/a", "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/a",
           "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers/a"]
WORKLOAD = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads/distributedtrainingjob-"
# A repeated event is counted up half a minute after the first: tests/unit/operator/kube/event_recorder_test.cc.
TAKES_TOO_LONG = ("patch", "events.events.k8s.io")
# Where the API server does not serve Kubernetes' own groups the operator can only list them, to find that out.
OF_NEWER_KUBERNETES = {(verb, "podgroups.scheduling.k8s.io") for verb in ("create", "delete", "get", "patch", "watch")}


@pytest.fixture(scope="module", autouse=True)
def optional_kinds(control_plane):
    kueue = "kueue.x-k8s.io"
    definitions.install(api(), ["kueue-workloads", "kueue-resourceflavors", "kueue-workloadpriorityclasses", "scheduler-plugins-podgroups",
                                "volcano-podgroups"], [
        definitions.definition(kueue, "v1beta2", "workloads", "Workload"),
        definitions.definition(kueue, "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", definitions.CLUSTER),
        definitions.definition(kueue, "v1beta2", "resourceflavors", "ResourceFlavor", definitions.CLUSTER),
        definitions.definition("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
        definitions.definition("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")])


def get(path):
    """The object, or None where there is none."""
    status, answer = api().request("GET", path)
    expect(status in (200, 404), answer)
    return answer if status == 200 else None


def patch(path, change):
    status, answer = api().request("PATCH", path, change, MERGE)
    expect(status == 200, f"{path}: {answer}")


def post(path, document):
    status, answer = api().request("POST", path, document)
    expect(status == 201, answer)


def serves_kubernetes_groups():
    return get(f"/apis/{GANGS['workload'][1]}/podgroups") is not None


class Release:
    """An operator as the chart starts it, with a pod of its own and one that has led before: for one namespace, with metrics for those only who may
    get them, or for all, with metrics for everybody."""

    def __init__(self, is_for_one_namespace):
        self.system, self.namespace = make_namespace(api(), "system"), make_namespace(api(), "jobs")
        self.is_for_one_namespace = is_for_one_namespace
        self.flags = ["--leader-elect", f"--namespace={self.system}", "--tls-secret=lockstep-rendezvous-tls",
                      f"--rendezvous-url=https://lockstep-rendezvous.{self.system}.svc:29400",
                      *([f"--watch-namespaces={self.namespace}", "--secure-metrics-address=127.0.0.1:0"] if is_for_one_namespace else [])]
        for name in ("own", "former"):
            labels = {"app.kubernetes.io/name": "lockstep", "lockstep.dev/leader": "true"}
            post(f"/api/v1/namespaces/{self.system}/pods", {
                "metadata": {"name": name, "labels": labels},
                "spec": {"schedulerName": "nobody", "containers": [{"name": "operator", "image": "localhost/none:1"}]}})

    def operator(self):
        return Operator(PROGRAM, *self.flags, pod="own")

    def job(self, name):
        return JOBS.format(self.namespace) + f"/{name}"

    def create(self, document):
        return create(api(), self.namespace, document)

    def pods(self, name):
        return pods_of(api(), self.namespace, name)

    def until(self, what, condition):
        return until(what, condition, poll=0.02, details=self.running.text)

    def lead_and_hand_over(self):
        """The lease, the certificate, which is of no use the second time, and the leader's label."""
        secret = f"/api/v1/namespaces/{self.system}/secrets/lockstep-rendezvous-tls"
        with self.operator() as first:
            first.await_record("leading")
            first.process.terminate()
            expect(first.process.wait(LIMIT) == 0, first.text())
        patch(secret, {"data": {"tls.crt": base64.b64encode(b"none").decode()}})

    def await_label(self):
        self.until("it alone bears the leader's label", lambda: [
            pod["metadata"]["name"] for pod in api().request("GET", f"/api/v1/namespaces/{self.system}/pods")[1]["items"]
            if "lockstep.dev/leader" in pod["metadata"]["labels"]] == ["own"])

    def restore(self, path):
        """What others have changed is as the job wants it again: without the label the operator sees no such object."""
        self.until(f"{path} is there", lambda: get(path))
        patch(path, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
        self.until(f"{path} is ours again", lambda: "app.kubernetes.io/managed-by" in get(path)["metadata"]["labels"])

    def keep_objects(self):
        document = job("a", 2, network={}, schedulingPolicy={"podDisruptionBudget": True})
        document["spec"]["worker"]["createServiceAccount"] = True
        document["spec"]["elasticPolicy"]["metrics"] = [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}}]
        self.create(document)
        paths = [path.format(self.namespace) for path in OBJECTS]
        for path in paths:
            self.restore(path)
        patch(self.job("a"), {"spec": {"network": {"networkPolicy": "None"}, "elasticPolicy": {"metrics": None},
                                       "schedulingPolicy": {"podDisruptionBudget": False}, "worker": {"createServiceAccount": False}}})
        self.until("they go with the spec", lambda: [path for path in paths if get(path)] == paths[:2])

    def keep_gangs(self):
        gangs = {name: gang for name, gang in GANGS.items() if name != "workload" or serves_kubernetes_groups()}
        for name, (provider, _) in gangs.items():
            self.create(job(name, 1, schedulingPolicy={"gang": {"provider": provider}}))
        for name, (_, group) in gangs.items():
            path = NAMESPACES.format(group, self.namespace, "podgroups") + f"/{name}"
            self.restore(path)
            patch(self.job(name), {"spec": {"schedulingPolicy": {"gang": None}}})
            self.until("the group goes", lambda path=path: not get(path))

    def queue(self):
        self.create(job("queued", 1, schedulingPolicy={"queueName": "all"}))
        workload = WORKLOAD.format(self.namespace) + "queued"
        self.until("its Workload", lambda: get(workload))
        patch(self.job("queued"), {"spec": {"suspend": True}})
        self.until("inactive", lambda: get(workload)["spec"]["active"] is False)
        patch(self.job("queued"), {"spec": {"suspend": False}})
        said = [{"type": kind, "status": "True", "reason": "Preempted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("QuotaReserved", "Evicted")]
        patch(workload + "/status", {"status": {"conditions": said}})
        self.until("the quota is given back", lambda: [
            entry["status"] for entry in get(workload)["status"]["conditions"] if entry["type"] == "QuotaReserved"] == ["False"])
        patch(self.job("queued"), {"spec": {"schedulingPolicy": {"queueName": None}}})
        self.until("the Workload goes", lambda: not get(workload))

    def replace_a_failed_pod(self):
        """Whose name another one bears meanwhile."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        strange = {"metadata": {"name": "b-worker-0"}, "spec": {"containers": [{"name": "c", "image": "localhost/none:1"}], "schedulerName": "nobody"}}
        post(pods, strange)
        self.create(job("b", 1))
        self.until("it is refused", lambda: "exists and does not belong to this job" in json.dumps(get(self.job("b")).get("status", {})))
        api().request("DELETE", f"{pods}/b-worker-0", {"gracePeriodSeconds": 0})
        first, = self.until("its pod", lambda: self.pods("b"))
        patch(f"{pods}/b-worker-0/status", {"status": {"phase": "Failed", "containerStatuses": [
            {"name": "trainer", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}]}})
        self.until("another pod", lambda: [pod for pod in self.pods("b") if pod["metadata"]["uid"] != first["metadata"]["uid"]])

    def hear_from_a_worker(self):
        created = self.create(job("c", 1))
        pod, = self.until("its pod", lambda: self.pods("c"))
        config = self.until("its configuration", lambda: get(f"/api/v1/namespaces/{self.namespace}/configmaps/c-config"))
        trusted = ssl.create_default_context(cadata=config["data"]["ca.crt"])
        Worker(self.namespace, created, pod, trusted).beat(self.running)

    def be_scraped(self):
        """By itself, which may not."""
        status, answer = api().request("POST", f"/api/v1/namespaces/{self.system}/serviceaccounts/lockstep/token", {"spec": {}})
        expect(status == 201, answer)
        port = self.running.await_record("operator started")["metrics_port"]
        status, text = scraped(port, answer["status"]["token"])
        expect(status == 403, text)

    def outlive_no_job(self):
        self.create(job("d", 1, runPolicy={"ttlSecondsAfterFinished": 0}))
        pod, = self.until("its pod", lambda: self.pods("d"))
        patch(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status", {"status": {"phase": "Succeeded"}})
        self.until("the job is gone", lambda: not get(self.job("d")))

    def look_at_another_installation(self):
        other = job("e", 1)
        other["metadata"]["annotations"] = {"lockstep.dev/installation": f"{self.system}/none"}
        self.create(other)
        self.until("it is left alone", lambda: self.running.records("ignored a job of another installation"))
        patch(self.job("e"), {"metadata": {"annotations": None}})

    def delete_jobs(self):
        status, answer = api().request("DELETE", JOBS.format(self.namespace))
        expect(status == 200, answer)
        self.until("all jobs are gone", lambda: not api().request("GET", JOBS.format(self.namespace))[1]["items"])

    def make_every_request(self):
        self.lead_and_hand_over()
        with self.operator() as self.running:
            self.running.await_record("leading")
            self.await_label()
            self.keep_objects()
            self.keep_gangs()
            if self.is_for_one_namespace:
                self.be_scraped()
            else:
                self.queue()
            self.replace_a_failed_pod()
            self.hear_from_a_worker()
            self.outlive_no_job()
            self.look_at_another_installation()
            self.delete_jobs()

    def unused(self):
        unseen = {TAKES_TOO_LONG} | (set() if serves_kubernetes_groups() else OF_NEWER_KUBERNETES)
        release = release_of(*self.flags)
        spare = rights.granted(release) - rights.used(release)
        return sorted(str(right) for right in spare if (right.verb, right.resource) not in unseen)


@pytest.mark.parametrize("is_for_one_namespace", (True, False), ids=("one_namespace", "all_namespaces"))
def test_a_release_uses_every_right(is_for_one_namespace):
    release = Release(is_for_one_namespace)
    release.make_every_request()
    until("the operator has used each right of the chart's roles", lambda: not release.unused(), details=lambda: "\n".join(release.unused()))


def test_a_selector_of_namespaces_uses_the_rights_that_it_adds():
    system = f"--namespace={make_namespace(api(), 'system')}"
    flags = (system, "--namespace-selector=team=none")
    added = rights.granted(release_of(*flags)) - rights.granted(release_of(system))
    expect({right.resource for right in added} == {"namespaces"}, added)

    def unused():
        return sorted(map(str, added - rights.used(release_of(*flags))))
    with Operator(PROGRAM, *flags):
        until("the operator has used them", lambda: not unused(), details=lambda: "\n".join(unused()))


def test_a_certificate_of_somebody_else_is_read_and_nothing_more():
    flags = (f"--namespace={make_namespace(api(), 'system')}", "--certificate-secret=issued", "--rendezvous-url=https://localhost:1")
    secrets = {right for right in rights.granted(release_of(*flags)) if right.resource == "secrets"}
    expect({(right.verb, right.names) for right in secrets} == {("get", ("issued",))}, secrets)
    with Operator(PROGRAM, *flags) as operator:
        until("it is used", lambda: secrets <= rights.used(release_of(*flags)), details=operator.text)
