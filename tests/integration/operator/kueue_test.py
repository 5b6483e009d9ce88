"""Jobs that queue, on a real API server; the test writes what Kueue would write into their Workloads.

Needs KUBECONFIG of an administrator.
"""
import datetime

import pytest

import definitions
from build_folder import BUILD
from cases import expect
from kube_api import MERGE, api
from operators import JOBS, OperatedJob, job, pods_of

PROGRAM = BUILD / "operator/lockstep-operator"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = KUEUE + "/namespaces/{}/workloads"


@pytest.fixture(scope="module", autouse=True)
def kueue(control_plane):
    group = "kueue.x-k8s.io"
    definitions.install(api(), ["kueue-workloads", "kueue-resourceflavors", "kueue-workloadpriorityclasses"], [
        definitions.definition(group, "v1beta2", "workloads", "Workload"),
        definitions.definition(group, "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", definitions.CLUSTER),
        definitions.definition(group, "v1beta2", "resourceflavors", "ResourceFlavor", definitions.CLUSTER)])


def request(method, path, body=None):
    status, answer = api().request(method, path, body, *([MERGE] if method == "PATCH" else []))
    expect(status in (200, 201), f"{method} {path}: {answer}")
    return answer


def workload_of(namespace):
    found = api().request("GET", WORKLOADS.format(namespace))[1]["items"]
    return found[0] if found else None


def says(workload, kind, status, reason=None):
    return any(entry["type"] == kind and entry["status"] == status and reason in (None, entry["reason"])
               for entry in (workload or {}).get("status", {}).get("conditions", []))


def say(namespace, conditions, **fields):
    """As Kueue: conditions of the one Workload, and other fields of its status."""
    workload = workload_of(namespace)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = [{"type": kind, "status": status, "reason": reason, "message": f"{kind} is {status}", "lastTransitionTime": now}
            for kind, status, reason in conditions]
    names = {entry["type"] for entry in said}
    kept = [entry for entry in workload.get("status", {}).get("conditions", []) if entry["type"] not in names]
    request("PATCH", f"{WORKLOADS.format(namespace)}/{workload['metadata']['name']}/status",
            {"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]}, "status": {"conditions": kept + said, **fields}})


def admit(namespace, count, **assignment):
    say(namespace, [("QuotaReserved", "True", "QuotaReserved"), ("Admitted", "True", "Admitted"), ("Evicted", "False", "QuotaReserved")],
        admission={"clusterQueue": "all", "podSetAssignments": [
            {"name": "main", "count": count, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": str(count)}, **assignment}]})


def set_phase(namespace, phase):
    ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
    for pod in pods_of(api(), namespace, "a"):
        request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/status",
                {"status": {"phase": phase, "conditions": ready}})


def condition(namespace, kind):
    conditions = api().request("GET", JOBS.format(namespace) + "/a")[1].get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {"status": "", "reason": ""})


def make_flavor():
    status, answer = api().request("POST", f"{KUEUE}/resourceflavors", {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "spot"},
        "spec": {"nodeLabels": {"kind": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}})
    expect(status in (201, 409), f"{answer}")


def make_classes():
    for path, kind, name, value in (("/apis/scheduling.k8s.io/v1/priorityclasses", "scheduling.k8s.io/v1 PriorityClass", "high", 7),
                                    (f"{KUEUE}/workloadpriorityclasses", "kueue.x-k8s.io/v1beta2 WorkloadPriorityClass", "urgent", 100),
                                    (f"{KUEUE}/workloadpriorityclasses", "kueue.x-k8s.io/v1beta2 WorkloadPriorityClass", "late", 1)):
        version, kind = kind.split()
        status, answer = api().request("POST", path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "value": value})
        expect(status in (201, 409), f"{answer}")


class QueuedJob(OperatedJob):
    """A job of two pods at least and four at most, each with two GPUs."""

    def __init__(self, name, labels=None, annotations=None, **policy):
        document = job("a", 4, schedulingPolicy={"queueName": "research", **policy})
        document["spec"]["elasticPolicy"] = {"minReplicas": 2, "maxReplicas": 4}
        document["metadata"]["labels"] = labels or {}
        template = document["spec"]["worker"]["template"]
        template["metadata"] = {"annotations": annotations or {}}
        template["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 2}}
        super().__init__(api(), PROGRAM, name, document, whole_cluster=True)

    def __enter__(self):
        super().__enter__()
        self.until("its Workload", lambda: workload_of(self.namespace))
        return self

    def until_waits_for_gpus(self, count):
        series = f'lockstep_job_gpus{{job_name="a",namespace="{self.namespace}",state="waiting"}}'
        self.until(f"it waits for {count} GPUs", lambda: self.operator.metrics().get(series) == count)


def test_a_job_runs_where_and_with_what_it_was_admitted_and_tells_how_it_ended():
    make_flavor()
    with QueuedJob("admitted") as queued:
        namespace = queued.namespace
        spec = workload_of(namespace)["spec"]
        expect(spec["queueName"] == "research" and spec["podSets"][0]["count"] == 4, f"{spec}")
        expect(spec["podSets"][0]["minCount"] == 2, f"{spec}")
        queued.until("it says that it waits", lambda: condition(namespace, "QuotaReserved")["status"] == "False")
        expect(not queued.pods(), "pods before it is admitted")
        queued.until_waits_for_gpus(8)
        admit(namespace, 3)
        queued.until("three pods", lambda: len(queued.pods()) == 3)
        queued.until_waits_for_gpus(6)
        expect(queued.operator.metrics()["lockstep_queue_seconds_count"] == 1, "how long it queued was not measured")
        for pod in queued.pods():
            expect(pod["spec"]["nodeSelector"] == {"kind": "spot"}, f"{pod['spec']}")
            expect(any(entry.get("key") == "spot" for entry in pod["spec"]["tolerations"]), f"{pod['spec']}")
        set_phase(namespace, "Running")
        queued.until("Kueue hears that they are ready", lambda: says(workload_of(namespace), "PodsReady", "True"))
        expect(condition(namespace, "QuotaReserved")["status"] == "True", "the job's own condition")
        set_phase(namespace, "Succeeded")
        queued.until("Kueue hears of the end", lambda: says(workload_of(namespace), "Finished", "True", "Succeeded"))


def test_an_evicted_job_gives_its_quota_back_once_its_pods_are_gone_and_runs_again():
    make_flavor()
    with QueuedJob("evicted") as queued:
        namespace = queued.namespace
        admit(namespace, 4)
        queued.until("its pods", lambda: len(queued.pods()) == 4)
        say(namespace, [("Evicted", "True", "Preempted")])
        queued.until("its pods are gone", lambda: not queued.pods())
        queued.until("the quota is given back", lambda: says(workload_of(namespace), "QuotaReserved", "False"))
        workload = workload_of(namespace)
        expect("admission" not in workload["status"] and says(workload, "Requeued", "True", "Preempted"), f"{workload['status']}")
        expect(condition(namespace, "Suspended")["reason"] == "Evicted", "the job's own condition")
        admit(namespace, 4)
        queued.until("its pods are back", lambda: len(queued.pods()) == 4)


def test_a_suspended_job_is_inactive_in_its_queue_and_a_changed_one_queues_anew():
    make_flavor()
    with QueuedJob("changed") as queued:
        namespace = queued.namespace
        queued.patch({"suspend": True})
        queued.until("inactive", lambda: workload_of(namespace)["spec"]["active"] is False)
        queued.patch({"suspend": False})
        queued.until("active again", lambda: workload_of(namespace)["spec"]["active"] is True)
        admit(namespace, 4)
        queued.until("its pods", lambda: len(queued.pods()) == 4)
        before = workload_of(namespace)["metadata"]["uid"]
        queued.patch({"schedulingPolicy": {"queueName": "other"}})
        fresh = queued.until("another Workload", lambda: next(
            (found for found in [workload_of(namespace)] if found and found["metadata"]["uid"] != before), None))
        expect(fresh["spec"]["queueName"] == "other" and not queued.pods(), f"{fresh['spec']}")


def class_of(namespace):
    spec = workload_of(namespace)["spec"]
    return spec.get("priorityClassRef", {}).get("kind"), spec.get("priorityClassRef", {}).get("name"), spec.get("priority")


def label(namespace, value):
    request("PATCH", JOBS.format(namespace) + "/a", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": value}}})


def test_a_job_queues_with_the_priority_of_its_class_and_follows_its_label():
    make_flavor()
    make_classes()
    with QueuedJob("pods", priorityClassName="high") as queued:
        namespace = queued.namespace
        expect(class_of(namespace) == ("PriorityClass", "high", 7), f"{workload_of(namespace)['spec']}")
        expect(workload_of(namespace)["spec"]["podSets"][0]["template"]["spec"]["priorityClassName"] == "high", "the class of its pods")
    with QueuedJob("labelled", {"kueue.x-k8s.io/priority-class": "late"}, priorityClassName="high") as queued:
        namespace = queued.namespace
        expect(class_of(namespace) == ("WorkloadPriorityClass", "late", 1), f"{workload_of(namespace)['spec']}")
        admit(namespace, 4)
        queued.until("its pods", lambda: len(queued.pods()) == 4)
        label(namespace, "urgent")
        queued.until("its priority follows while it runs", lambda: class_of(namespace) == ("WorkloadPriorityClass", "urgent", 100))
        expect(says(workload_of(namespace), "Admitted", "True") and len(queued.pods()) == 4, "nobody stops for that")
        request("PATCH", f"{WORKLOADS.format(namespace)}/{workload_of(namespace)['metadata']['name']}", {"spec": {"priority": 50}})
        queued.patch({"suspend": True})
        queued.until("inactive", lambda: workload_of(namespace)["spec"]["active"] is False)
        expect(class_of(namespace)[2] == 50, "what an administrator has set stays")


def test_a_job_whose_class_is_missing_says_so_and_queues_once_it_is_there():
    name = f"new-{datetime.datetime.now().timestamp():.0f}"
    document = job("a", 1, schedulingPolicy={"queueName": "research"})
    document["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": name}
    with OperatedJob(api(), PROGRAM, "missing", document, whole_cluster=True) as waiting:
        namespace = waiting.namespace
        waiting.until("it says that it waits", lambda: condition(namespace, "QuotaReserved")["status"] == "False")
        reserved = condition(namespace, "QuotaReserved")
        expect(reserved["reason"] == "QueueUnavailable" and name in reserved["message"], f"{reserved}")
        expect(not workload_of(namespace), "a Workload without its priority")
        request("POST", f"{KUEUE}/workloadpriorityclasses", {
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": 3})
        waiting.until("it queues", lambda: workload_of(namespace) and class_of(namespace) == ("WorkloadPriorityClass", name, 3))


def test_a_job_asks_for_its_place_in_the_topology_and_its_pods_wait_for_it():
    make_flavor()
    topology = {"levels": ["rack"], "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "r1"}], "podCounts": {"universal": 4}}]}
    with QueuedJob("placed", annotations={"kueue.x-k8s.io/podset-required-topology": "rack"}) as queued:
        namespace = queued.namespace
        asked = workload_of(namespace)["spec"]["podSets"][0]["topologyRequest"]
        expect(asked == {"required": "rack", "podIndexLabel": "lockstep.dev/slot"}, f"{asked}")
        admit(namespace, 4, topologyAssignment=topology)
        queued.until("its pods", lambda: len(queued.pods()) == 4)
        for pod in queued.pods():
            expect(pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}], f"{pod['spec']}")
            expect(pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == workload_of(namespace)["metadata"]["name"], f"{pod}")
            expect(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "main", f"{pod['metadata']}")
            # As Kueue opens the gate: strategic merge, for the list of gates has names.
            status, answer = api().request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", {
                "spec": {"nodeSelector": {"rack": "r1"},
                         "schedulingGates": [{"$patch": "delete", "name": "kueue.x-k8s.io/topology"}]}},
                "application/strategic-merge-patch+json")
            expect(status == 200, f"{answer}")
        before = {pod["metadata"]["uid"] for pod in queued.pods()}
        set_phase(namespace, "Running")
        queued.until("Kueue hears that they are ready", lambda: says(workload_of(namespace), "PodsReady", "True"))
        expect({pod["metadata"]["uid"] for pod in queued.pods()} == before, "a pod was replaced for what Kueue wrote into it")
