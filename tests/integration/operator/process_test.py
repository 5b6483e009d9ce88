"""The operator's program on a real API server: hand-over, a leader that was paused, what workers report, listed namespaces.

Needs KUBECONFIG of an administrator.
"""
import signal
import subprocess
import time

from build_folder import BUILD
from cases import LIMIT, expect, until
from failing_api import FailingApi
from kube_api import MERGE, api
from operators import JOBS, Operator, create, job, kubeconfig_for, make_namespace, pods_of, scraped
from shards import Table
from workers import Worker

PROGRAM = BUILD / "operator/lockstep-operator"
LEASE_SECONDS = LIMIT  # so that a lease which nobody gives back is seen as such on any machine
PODS = 300


def kubectl(*arguments):
    return subprocess.run(["kubectl", *arguments], check=True, text=True, capture_output=True).stdout


def names(api, namespace, name):
    return sorted(pod["metadata"]["name"] for pod in pods_of(api, namespace, name))


def shards(operator):
    """How many it leads."""
    return next((record["shards"] for record in reversed(operator.records("leading"))), 0)


def leader_first(namespace, created, *operators):
    """The two operators, that which leads the job first."""
    table = Table(api().request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/lockstep-leader")[1])
    return sorted(operators, key=lambda operator: operator.await_record("operator started")["identity"] != table.leader_of(created["metadata"]["uid"]))


def test_hands_over_before_the_lease_ends_in_the_middle_of_a_large_job():
    namespace = make_namespace(api(), "handover")
    flags = ("--leader-elect", f"--namespace={namespace}", f"--watch-namespaces={namespace}", f"--lease-duration-seconds={LEASE_SECONDS}",
             f"--lease-renew-deadline-seconds={LEASE_SECONDS - 10}")
    with Operator(PROGRAM, *flags) as first, Operator(PROGRAM, *flags) as second:
        until("both lead their shares", lambda: shards(first) == shards(second) == 8, details=lambda: first.text() + second.text())
        leader, other = leader_first(namespace, create(api(), namespace, job("large", PODS)), first, second)
        until("it is at work", lambda: len(pods_of(api(), namespace, "large")) > PODS // 10, poll=0.005)
        leader.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        until("the other leads all jobs", lambda: shards(other) == 16, poll=0.005, details=other.text)
        taken = time.monotonic() - begin
        expect(taken < LEASE_SECONDS, f"handed over after {taken:.2f} s: nobody gave the lease back")
        print(f"     handed over after {taken:.2f} s")
        expect(leader.process.wait(LIMIT) == 0, leader.text())
        until("all pods", lambda: len(pods_of(api(), namespace, "large")) == PODS)
        expect(len(set(names(api(), namespace, "large"))) == PODS, "a pod twice")


def test_a_leader_paused_past_its_lease_ends_and_harms_nothing():
    namespace = make_namespace(api(), "paused")
    flags = ("--leader-elect", f"--namespace={namespace}", f"--watch-namespaces={namespace}", "--lease-duration-seconds=20",
             "--lease-renew-deadline-seconds=16", "--lease-retry-period-seconds=1")
    with Operator(PROGRAM, *flags) as first:
        first.await_record("leading")
        created = create(api(), namespace, job("a", 4))
        until("its pods", lambda: len(names(api(), namespace, "a")) == 4)
        with Operator(PROGRAM, *flags) as second:
            until("both lead their shares", lambda: shards(first) == shards(second) == 8, details=lambda: first.text() + second.text())
            leader, other = leader_first(namespace, created, first, second)
            leader.process.send_signal(signal.SIGSTOP)
            api().request("PATCH", JOBS.format(namespace) + "/a", {"spec": {"worker": {"replicas": 6}}},
                        MERGE)
            until("the other leads all jobs", lambda: shards(other) == 16, details=other.text)
            until("it scales", lambda: len(names(api(), namespace, "a")) == 6)
            before = {pod["metadata"]["uid"] for pod in pods_of(api(), namespace, "a")}
            leader.process.send_signal(signal.SIGCONT)
            expect(leader.process.wait(LIMIT) == 1, "it must end: " + leader.text())
            expect({pod["metadata"]["uid"] for pod in pods_of(api(), namespace, "a")} == before, "pods were touched")
            expect(other.process.poll() is None, other.text())


def test_an_operator_of_listed_namespaces_leaves_the_others_alone():
    system, ours, others, theirs = (make_namespace(api(), name) for name in ("system", "ours", "others", "theirs"))
    with Operator(PROGRAM, f"--namespace={system}", f"--watch-namespaces={ours},{others}") as operator:
        operator.await_record("leading")
        for namespace in (theirs, ours, others):
            create(api(), namespace, job("a", 2))
        for namespace in (ours, others):
            until("pods of ours", lambda: len(names(api(), namespace, "a")) == 2, details=operator.text)
        expect(names(api(), theirs, "a") == [], "the other namespace was touched")


def test_metrics_are_for_those_whom_the_api_server_lets_get_them():
    system = make_namespace(api(), "scraped")
    for account in ("prometheus", "somebody"):
        kubectl("create", "serviceaccount", account, "--namespace", system)
    kubectl("create", "clusterrolebinding", f"{system}-prometheus", f"--clusterrole={system}:lockstep-metrics-reader",
            f"--serviceaccount={system}:prometheus")
    token = {account: kubectl("create", "token", account, "--namespace", system).strip() for account in ("prometheus", "somebody")}
    with Operator(PROGRAM, f"--watch-namespaces={system}", f"--namespace={system}", "--secure-metrics-address=127.0.0.1:0") as operator:
        started = operator.await_record("operator started")
        port = started["metrics_port"]
        # The authorizer of the API server takes its time to see a new binding; a no holds for a minute here.
        until("the API server knows of the binding", lambda: subprocess.run(
            ["kubectl", "auth", "can-i", "get", "/metrics", "--as", f"system:serviceaccount:{system}:prometheus"], capture_output=True).returncode == 0)
        until("its account may scrape", lambda: scraped(port, token["prometheus"])[0] == 200, details=operator.text)
        expect("lockstep_build_info" in scraped(port, token["prometheus"])[1], "no metrics")
        for bearer, wanted, says in ((None, 401, "no bearer token"), ("rubbish", 401, ""),
                                     (token["somebody"], 403, f"system:serviceaccount:{system}:somebody may not get /metrics")):
            status, text = scraped(port, bearer)
            expect(status == wanted and says in text, f"{status} instead of {wanted}: {text}")
        health = started["health_port"]
        expect(scraped(health, scheme="http")[0] == 404, "the metrics are on the port of the health, too")
        expect(scraped(health, path="/healthz", scheme="http")[0] == 200, "no health")


def test_tells_of_a_damaged_checkpoint_once_whoever_leads():
    namespace = make_namespace(api(), "damaged")
    reason = "s3://bucket/a/step-000000000020/shard-0: size or SHA-256 differ from the manifest"
    first, second = {"step": 20, "reason": reason}, {"step": 10, "reason": "s3://bucket/a/step-000000000010/shard-0: is missing"}

    def reported():
        events = api().request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")[1]["items"]
        return sorted((event["type"], event["note"]) for event in events if event["reason"] == "CheckpointDamaged")

    def is_told(damaged):
        return any(kind == "Warning" and damaged["reason"] in note for kind, note in reported())
    with Operator(PROGRAM, f"--watch-namespaces={namespace}") as operator:
        created = create(api(), namespace, job("a", 1, checkpoint={"uri": "s3://bucket/a"}))
        pod, = until("its pod", lambda: pods_of(api(), namespace, "a"), details=operator.text)
        worker = Worker(namespace, created, pod)
        worker.beat(operator, damagedCheckpoints=[first])
        until("an event tells", lambda: is_told(first), details=operator.text)
        expect("`lockstep checkpoint verify s3://bucket/a`" in reported()[0][1], reported())
        worker.beat(operator, damagedCheckpoints=[first])
    with Operator(PROGRAM, f"--watch-namespaces={namespace}") as operator:
        worker.beat(operator, damagedCheckpoints=[first])
        worker.beat(operator, damagedCheckpoints=[first, second])
        until("another event tells", lambda: is_told(second), details=operator.text)
        expect(len(reported()) == 2, reported())
    described = kubectl("describe", "dtj", "a", "--namespace", namespace)
    expect(reason in described.split("Events:")[1], described)


def test_reaches_the_api_server_and_serves_workers_over_ipv6():
    namespace = make_namespace(api(), "ipv6")
    flag = f"--watch-namespaces={namespace}"
    with FailingApi(kubeconfig_for(flag), "::1") as network, Operator(
            PROGRAM, flag, "--rendezvous-address=[::1]:0", "--metrics-address=[::1]:0", kubeconfig=network.kubeconfig) as operator:
        created = create(api(), namespace, job("a", 1))
        pod, = until("its pod", lambda: pods_of(api(), namespace, "a"), details=operator.text)
        Worker(namespace, created, pod).beat(operator, host="[::1]")
        port = operator.await_record("operator started")["metrics_port"]
        expect(scraped(port, host="[::1]", scheme="http")[0] == 200, operator.text())


KINDS = {"Service": "/api/v1/namespaces/{}/services", "ConfigMap": "/api/v1/namespaces/{}/configmaps",
         "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
         "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
         "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
         "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"}


def objects_of(namespace, name):
    """Kinds of the objects beside the pods."""
    selector = f"?labelSelector=lockstep.dev%2Fjob%3D{name}"
    return {kind for kind, path in KINDS.items() if api().request("GET", path.format(namespace) + selector)[1]["items"]}


def metric(value):
    return {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": value}}}


def test_writes_the_objects_of_a_job_once_and_follows_its_spec():
    namespace = make_namespace(api(), "objects")
    document = job("a", 2, network={}, schedulingPolicy={"podDisruptionBudget": True})
    document["spec"]["worker"]["createServiceAccount"] = True
    document["spec"]["elasticPolicy"]["metrics"] = [metric("0.5")]  # the API server makes 500m of it

    def patch(spec):
        status, answer = api().request("PATCH", JOBS.format(namespace) + "/a", {"spec": spec}, MERGE)
        expect(status == 200, f"{answer}")
        return answer["metadata"]["generation"]

    def until_observed(generation):
        until("the operator has seen it", lambda: api().request("GET", JOBS.format(namespace) + "/a")[1].get("status", {}).get(
            "observedGeneration") == generation, details=operator.text)
    with Operator(PROGRAM, f"--watch-namespaces={namespace}") as operator:
        create(api(), namespace, document)
        until("all objects", lambda: objects_of(namespace, "a") == set(KINDS), details=operator.text)
        until("its pods", lambda: len(names(api(), namespace, "a")) == 2, details=operator.text)
        until_observed(1)
        service = f"/api/v1/namespaces/{namespace}/services/a"
        until("the Service selects them", lambda: api().request("GET", service)[1]["spec"].get("selector"), details=operator.text)
        planned = len(operator.records("planned"))
        for seconds in (60, 61):  # each makes a pass
            until_observed(patch({"runPolicy": {"ttlSecondsAfterFinished": seconds}}))
        again = [record["action"] for record in operator.records("planned")[planned:]]
        expect(not again, f"written again: {again}")
        until_observed(patch({"network": {"networkPolicy": "None"}, "elasticPolicy": {"metrics": None}}))
        until("they go with the spec", lambda: set(KINDS) - objects_of(namespace, "a") == {
            "NetworkPolicy", "HorizontalPodAutoscaler"}, details=operator.text)
