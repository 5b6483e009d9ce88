"""The operator's program while the API server fails in one part or another.

Needs KUBECONFIG of an administrator.
"""
import definitions
from build_folder import BUILD
from cases import expect, until
from failing_api import HANG, FailingApi
from kube_api import api
from operators import Operator, create, job, kubeconfig_for, make_namespace, pods_of

PROGRAM = BUILD / "operator/lockstep-operator"
LEADER = "lockstep.dev/leader"


def test_a_leader_whose_requests_hang_ends_before_another_leads():
    namespace = make_namespace(api(), "hanging")
    flags = ("--leader-elect", f"--namespace={namespace}", f"--watch-namespaces={namespace}", "--lease-duration-seconds=12",
             "--lease-renew-deadline-seconds=4", "--lease-retry-period-seconds=1")
    with FailingApi(kubeconfig_for(*flags)) as network, Operator(PROGRAM, *flags, kubeconfig=network.kubeconfig) as first:
        first.await_record("leading")
        with Operator(PROGRAM, *flags) as second:
            second.await_record("leading")
            network.fault = lambda method, path: HANG if "/leases/" in path else None
            until("the second leads all jobs", lambda: second.records("leading")[-1]["shards"] == 16, details=second.text)
            expect(first.process.poll() == 1, "two lead: " + first.text())
            expect(first.records("lost the leader lease, ending at once"), first.text())
            expect(second.process.poll() is None, second.text())


def make_pod(namespace, name, instance="lockstep", leads=True):
    labels = {"app.kubernetes.io/name": "lockstep", "app.kubernetes.io/instance": instance, **({LEADER: "true"} if leads else {})}
    status, answer = api().request("POST", f"/api/v1/namespaces/{namespace}/pods", {
        "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "operator", "image": "localhost/none:1"}]}})
    expect(status == 201, answer)


def labelled(namespace):
    return sorted(pod["metadata"]["name"] for pod in api().request("GET", f"/api/v1/namespaces/{namespace}/pods")[1]["items"]
                  if LEADER in pod["metadata"]["labels"])


def test_a_label_left_behind_goes_once_the_api_server_answers():
    namespace = make_namespace(api(), "label")
    flags = ("--leader-elect", f"--namespace={namespace}", f"--watch-namespaces={namespace}")
    attempts = []

    def patches_fail(method, _path):
        if method == "PATCH":
            attempts.append(method)
            return 503
        return None
    with FailingApi(kubeconfig_for(*flags)) as network, Operator(PROGRAM, *flags) as leader:
        leader.await_record("leading")
        make_pod(namespace, "a")
        network.fault = patches_fail
        with Operator(PROGRAM, *flags, kubeconfig=network.kubeconfig, pod="a") as other:
            until("it has tried again", lambda: len(attempts) > 1, details=other.text)
            expect(labelled(namespace) == ["a"], other.text())
            network.fault = lambda method, path: 503 if "/leases/" in path else None  # it has no part in the jobs yet
            until("the label is gone", lambda: not labelled(namespace), details=other.text)


def test_the_leader_alone_bears_the_label():
    namespace = make_namespace(api(), "labels")
    make_pod(namespace, "a")
    make_pod(namespace, "b", leads=False)
    make_pod(namespace, "c", instance="another")
    with Operator(PROGRAM, "--leader-elect", f"--namespace={namespace}", f"--watch-namespaces={namespace}", pod="b") as leader:
        until("the others lose it", lambda: labelled(namespace) == ["b", "c"], details=leader.text)


def test_a_kind_that_a_cluster_may_lack_delays_nobody_and_is_found_later():
    namespace = make_namespace(api(), "kueue")
    group, path = "kueue.x-k8s.io", f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"
    flag = f"--watch-namespaces={namespace}"
    with FailingApi(kubeconfig_for(flag, whole_cluster=True)) as network:
        network.fault = lambda method, path: 500 if group in path else None  # as where a conversion webhook is down
        with Operator(PROGRAM, flag, kubeconfig=network.kubeconfig) as operator:
            operator.await_record("leading")
            create(api(), namespace, job("plain", 2))
            create(api(), namespace, job("queued", 2, schedulingPolicy={"queueName": "q"}))
            until("its pods", lambda: len(pods_of(api(), namespace, "plain")) == 2, details=operator.text)
            network.fault = lambda method, path: None
            definitions.install(api(), ["kueue-workloads", "kueue-resourceflavors", "kueue-workloadpriorityclasses"], [
                definitions.definition(group, "v1beta2", "workloads", "Workload"),
                definitions.definition(group, "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", definitions.CLUSTER),
                definitions.definition(group, "v1beta2", "resourceflavors", "ResourceFlavor", definitions.CLUSTER)])
            until("the other job queues", lambda: api().request("GET", path)[1]["items"], details=operator.text)
            expect(not pods_of(api(), namespace, "queued"), operator.text())
