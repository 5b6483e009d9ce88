#!/usr/bin/env python3
"""Jobs whose pods are placed together, on a real API server: the group that each scheduler wants, and that its pods name it.

gang_test.py PROGRAM [NAME…]    needs KUBECONFIG of an administrator; prints `N passed, N failed`

Kubernetes' own groups want 1.36 with the feature gates GenericWorkload and GangScheduling; on another one that case says NOT TESTED.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import definitions  # noqa: E402
from cases import expect, main  # noqa: E402
from kube_api import connected  # noqa: E402
from operators import OperatedJob, job  # noqa: E402

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""
GROUPS = "/apis/{}/namespaces/{}/podgroups"


class Gang(OperatedJob):
    """A job of four pods of which two may start."""

    def __init__(self, provider, group, **pod):
        document = job("a", 4, schedulingPolicy={"gang": {"provider": provider, "minCount": 2}})
        document["spec"]["worker"]["template"]["spec"].update(pod)
        super().__init__(API, PROGRAM, provider.lower(), document)
        self.group = group

    def __enter__(self):
        super().__enter__()
        self.until("its pods", lambda: len(self.pods()) == 4)
        return self

    def groups(self):
        status, answer = API.request("GET", GROUPS.format(self.group, self.namespace))
        expect(status == 200, f"{answer}")
        return answer["items"]

    def the_group(self):
        groups = self.groups()
        expect(len(groups) == 1 and groups[0]["metadata"]["name"] == "a", f"{groups}")
        expect(groups[0]["metadata"]["ownerReferences"][0]["name"] == "a", f"{groups}")
        return groups[0]


def the_scheduler_plugins_get_a_group_that_follows_the_spec():
    with Gang("Coscheduling", "scheduling.x-k8s.io/v1alpha1") as gang:
        expect(gang.the_group()["spec"]["minMember"] == 2, f"{gang.the_group()}")
        expect(all(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "a" for pod in gang.pods()), f"{gang.pods()}")
        gang.patch({"schedulingPolicy": {"gang": {"minCount": 3}}})
        gang.until("the group follows", lambda: gang.the_group()["spec"]["minMember"] == 3)
        gang.patch({"schedulingPolicy": {"gang": None}})
        gang.until("the group goes", lambda: not gang.groups())


def volcano_gets_a_group_and_the_pods():
    with Gang("Volcano", "scheduling.volcano.sh/v1beta1") as gang:
        expect(gang.the_group()["spec"]["minMember"] == 2, f"{gang.the_group()}")
        for pod in gang.pods():
            expect(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "a", f"{pod}")
            expect(pod["spec"]["schedulerName"] == "volcano", f"{pod}")


def kubernetes_gets_a_group_in_its_newest_version():
    newest = next((version for version in ("v1beta1", "v1alpha3", "v1alpha2")
                   if API.request("GET", f"/apis/scheduling.k8s.io/{version}/podgroups")[0] == 200), None)
    if newest is None:
        return print("     NOT TESTED: this API server serves no podgroups of scheduling.k8s.io")
    with Gang("Workload", f"scheduling.k8s.io/{newest}") as gang:
        group = gang.the_group()
        expect(group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}, f"{group}")
        expect(all(pod["spec"]["schedulingGroup"] == {"podGroupName": "a"} for pod in gang.pods()), f"{gang.pods()}")
    return None


CASES = [the_scheduler_plugins_get_a_group_that_follows_the_spec, volcano_gets_a_group_and_the_pods,
         kubernetes_gets_a_group_in_its_newest_version]

if __name__ == "__main__":
    with connected() as API:
        definitions.install(API, ["scheduler-plugins-podgroups", "volcano-podgroups"], [
            definitions.definition("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
            definitions.definition("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")])
        status = main(CASES, sys.argv[2:])
    sys.exit(status)
