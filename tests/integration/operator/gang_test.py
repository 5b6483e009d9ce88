"""Jobs whose pods are placed together, on a real API server: the group that each scheduler wants, and that its pods name it; gangs that share a quota.

Needs KUBECONFIG of an administrator.

Kubernetes' own groups want a newer API server than the usual one, else those cases are skipped. For all of it:
    tests/cluster/programs/build.sh --newest
    LOCKSTEP_KUBERNETES=newest tests/integration/operator/with-control-plane tests/pytest tests/integration/operator/gang_test.py
"""
import pytest

import definitions
from build_folder import BUILD
from cases import expect, until
from kube_api import api
from operators import JOBS, OperatedJob, create, job, pods_of, set_pod_quota

PROGRAM = BUILD / "operator/lockstep-operator"
GROUPS = "/apis/{}/namespaces/{}/podgroups"


@pytest.fixture(scope="module", autouse=True)
def groups_of_others(control_plane):
    definitions.install(api(), ["scheduler-plugins-podgroups", "volcano-podgroups"], [
        definitions.definition("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
        definitions.definition("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")])


class Gang(OperatedJob):
    """A job of four pods, of which two may start unless it is said otherwise."""

    def __init__(self, provider, group, fewest=2, **pod):
        document = job("a", 4, schedulingPolicy={"gang": {"provider": provider, "minCount": fewest}})
        document["spec"]["worker"]["template"]["spec"].update(pod)
        super().__init__(api(), PROGRAM, provider.lower(), document)
        self.group = group

    def __enter__(self):
        super().__enter__()
        self.until("its pods", lambda: len(self.pods()) == 4)
        return self

    def groups(self):
        status, answer = api().request("GET", GROUPS.format(self.group, self.namespace))
        expect(status == 200, f"{answer}")
        return answer["items"]

    def the_group(self):
        groups = self.groups()
        expect(len(groups) == 1 and groups[0]["metadata"]["name"] == "a", f"{groups}")
        expect(groups[0]["metadata"]["ownerReferences"][0]["name"] == "a", f"{groups}")
        return groups[0]


def test_the_scheduler_plugins_get_a_group_that_follows_the_spec():
    with Gang("Coscheduling", "scheduling.x-k8s.io/v1alpha1") as gang:
        expect(gang.the_group()["spec"]["minMember"] == 2, f"{gang.the_group()}")
        expect(all(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "a" for pod in gang.pods()), f"{gang.pods()}")
        gang.patch({"schedulingPolicy": {"gang": {"minCount": 3}}})
        gang.until("the group follows", lambda: gang.the_group()["spec"]["minMember"] == 3)
        gang.patch({"schedulingPolicy": {"gang": None}})
        gang.until("the group goes", lambda: not gang.groups())


def test_volcano_gets_a_group_and_the_pods():
    with Gang("Volcano", "scheduling.volcano.sh/v1beta1") as gang:
        expect(gang.the_group()["spec"]["minMember"] == 2, f"{gang.the_group()}")
        for pod in gang.pods():
            expect(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "a", f"{pod}")
            expect(pod["spec"]["schedulerName"] == "volcano", f"{pod}")


def group_of_kubernetes():
    """The group and its newest version that is served."""
    for version in ("v1beta1", "v1alpha3", "v1alpha2"):
        if api().request("GET", f"/apis/scheduling.k8s.io/{version}/podgroups")[0] == 200:
            return f"scheduling.k8s.io/{version}"
    pytest.skip("this API server serves no podgroups of scheduling.k8s.io; run tests/cluster/programs/build.sh --newest, "
                "then this with LOCKSTEP_KUBERNETES=newest")


def is_in_group(pods):
    return len(pods) == 4 and all(pod["spec"].get("schedulingGroup") == {"podGroupName": "a"} for pod in pods)


def test_kubernetes_gets_a_group_that_follows_the_spec_until_it_has_its_places():
    group = group_of_kubernetes()
    with Gang("Workload", group) as gang:
        before = gang.the_group()
        expect(before["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}, f"{before}")
        expect(is_in_group(gang.pods()), f"{gang.pods()}")
        gang.patch({"schedulingPolicy": {"gang": {"minCount": 3}}})
        gang.until("the group follows", lambda: [found["spec"]["schedulingPolicy"]["gang"]["minCount"] for found in gang.groups()] == [3])
        gang.until("its pods are of the group", lambda: is_in_group(gang.pods()))
        expect((gang.the_group()["metadata"]["uid"] != before["metadata"]["uid"]) == group.endswith("v1alpha2"), "made again, or changed")
        gang.patch({"suspend": True})
        gang.until("its pods go", lambda: not gang.pods())
        gang.patch({"suspend": False, "schedulingPolicy": {"gang": None}})
        gang.until("the group goes", lambda: not gang.groups())


def make_node(name):
    status, answer = api().request("POST", "/api/v1/nodes", {
        "metadata": {"name": name}, "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "10"}}})
    expect(status == 201, f"{answer}")


def has_to_wait(pod):
    return any(entry["type"] == "PodScheduled" and entry["status"] == "False" for entry in pod["status"].get("conditions", []))


def test_kubernetes_places_a_gang_all_together_or_not_at_all():
    group = group_of_kubernetes()
    trainer = {"name": "trainer", "image": "localhost/none:1", "resources": {"requests": {"cpu": "1"}}}
    make_node("half")
    try:
        with Gang("Workload", group, fewest=4, schedulerName="default-scheduler", containers=[trainer],
                  tolerations=[{"operator": "Exists"}]) as gang:
            gang.until("all have the condition that they wait", lambda: all(has_to_wait(pod) for pod in gang.pods()))
            expect(not any(pod["spec"].get("nodeName") for pod in gang.pods()), f"{gang.pods()}")
            make_node("other-half")
            gang.until("all have a node", lambda: sum(1 for pod in gang.pods() if pod["spec"].get("nodeName")) == 4)
    finally:
        for name in ("half", "other-half"):
            api().request("DELETE", f"/api/v1/nodes/{name}")


class QuotaGangs(OperatedJob):
    """Two gangs of three pods; the quota holds four."""

    def __init__(self):
        super().__init__(api(), PROGRAM, "quota", self.gang("a"))

    @staticmethod
    def gang(name):
        gang = {"provider": "None", "minCount": 3, "scheduleTimeoutSeconds": 2}
        return job(name, 3, schedulingPolicy={"gang": gang})

    def __enter__(self):
        set_pod_quota(api(), self.namespace, 2)
        super().__enter__()
        self.until("a holds a part of the quota", lambda: self.numbers()["a"] == 2)
        create(self.api, self.namespace, self.gang("b"))
        set_pod_quota(api(), self.namespace, 4)
        return self

    def numbers(self):
        return {name: len(pods_of(self.api, self.namespace, name)) for name in ("a", "b")}

    def releases(self):
        jobs = self.api.request("GET", JOBS.format(self.namespace))[1]["items"]
        return {found["metadata"]["name"]: found.get("status", {}).get("gang", {}).get("releases", 0) for found in jobs}


def test_a_gang_that_got_a_part_of_a_quota_gives_it_back_so_that_the_other_one_starts():
    with QuotaGangs() as gangs:
        gangs.until("a part is given back", lambda: max(gangs.releases().values()) > 0)
        gangs.until("one gang is complete", lambda: max(gangs.numbers().values()) == 3)
