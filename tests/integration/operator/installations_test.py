"""Several installations of the operator on one real API server: each runs the jobs that name it, in the namespaces that are its own.

Needs KUBECONFIG of an administrator.
"""
import contextlib

from build_folder import BUILD
from cases import expect, until
from kube_api import MERGE, api
from operators import JOBS, Operator, create, job, make_namespace, pods_of

PROGRAM = BUILD / "operator/lockstep-operator"
TEAM = "example.com/team"
HEIR = "example.com/heir"
INSTALLATION = "lockstep.dev/installation"


def rendezvous_of(namespace, name):
    """Of the operator that has made the job's configuration; nothing where there is none."""
    status, config = api().request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}-config")
    return "".join(config["data"].values()) if status == 200 else ""


def finalizers(namespace, name):
    status, found = api().request("GET", JOBS.format(namespace) + "/" + name)
    return found["metadata"].get("finalizers", []) if status == 200 else None


def pod_count(namespace, name):
    return len(pods_of(api(), namespace, name))


def jobs_counted(operator):
    return sum(value for series, value in operator.metrics().items() if series.startswith("lockstep_job_info{"))


def test_two_installations_share_a_cluster():
    system, first, second = (make_namespace(api(), name) for name in ("system", "first", "second"))
    flags = ("--leader-elect", f"--namespace={system}", f"--watch-namespaces={first},{second}")
    with (Operator(PROGRAM, *flags, "--lease-name=a-leader", "--rendezvous-url=http://rendezvous-a:1") as default,
          Operator(PROGRAM, *flags, "--lease-name=b-leader", "--rendezvous-url=http://rendezvous-b:1", f"--managed-by={TEAM}") as team):
        for operator in (default, team):
            operator.await_record("leading")
        named = {"absent": {}, "default": {"managedBy": "lockstep.dev/operator"}, "team": {"managedBy": TEAM}, "other": {"managedBy": "example.com/other"}}
        for namespace in (first, second):
            for name, section in named.items():
                create(api(), namespace, job(name, 2, **section))
        for namespace in (first, second):
            for name, url in (("absent", "rendezvous-a"), ("default", "rendezvous-a"), ("team", "rendezvous-b")):
                until(f"pods of {name}", lambda: pod_count(namespace, name) == 2, details=lambda: default.text() + team.text())
                expect(url in rendezvous_of(namespace, name), f"{name}: {rendezvous_of(namespace, name)}")
            expect(pod_count(namespace, "other") == 0 and finalizers(namespace, "other") == [], "a job of another controller was touched")
        until("its own jobs in the metrics", lambda: (jobs_counted(default), jobs_counted(team)) == (4, 2), details=default.text)

        # The objects of one installation are not written again, whatever the other one does.
        status, _ = api().request("PATCH", JOBS.format(first) + "/team", {"spec": {"worker": {"replicas": 3}}}, MERGE)
        expect(status == 200, status)
        until("its own operator scales", lambda: pod_count(first, "team") == 3, details=team.text)
        planned = {record["job"] for record in default.records("planned")}
        expect(planned == {f"{namespace}/{name}" for namespace in (first, second) for name in ("absent", "default")}, planned)
        planned = {record["job"] for record in team.records("planned")}
        expect(planned == {f"{namespace}/team" for namespace in (first, second)}, planned)

        # Both still lead, each by its own Lease, and each lets its own jobs go.
        leases = api().request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{system}/leases")[1]["items"]
        expect({lease["metadata"]["name"] for lease in leases} == {"a-leader", "b-leader"}, leases)
        for name in named:
            api().request("DELETE", JOBS.format(first) + "/" + name)
        for name in named:
            until(f"{name} is gone", lambda: finalizers(first, name) is None, details=lambda: default.text() + team.text())
        expect(pod_count(second, "team") == 2 and pod_count(second, "absent") == 2, "jobs of another namespace were touched")


def installation_of(namespace, name):
    return api().request("GET", JOBS.format(namespace) + "/" + name)[1]["metadata"].get("annotations", {}).get(INSTALLATION)


def conflicts(namespace):
    """Jobs with an event about them."""
    events = api().request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")[1]["items"]
    return sorted(event["regarding"]["name"] for event in events if event["reason"] == "InstallationConflict")


def test_two_installations_for_the_same_jobs_do_not_fight():
    jobs = make_namespace(api(), "jobs")
    names = [f"job{i}" for i in range(8)]
    with contextlib.ExitStack() as stack:
        operators = {}
        for letter in ("a", "b"):
            system = make_namespace(api(), letter)
            operators[f"{system}/{letter}-leader"] = letter, stack.enter_context(Operator(
                PROGRAM, "--leader-elect", f"--namespace={system}", f"--lease-name={letter}-leader", f"--watch-namespaces={jobs}",
                f"--rendezvous-url=http://rendezvous-{letter}:1"))

        def text():
            return "\n".join(operator.text() for _, operator in operators.values())
        for _, operator in operators.values():
            operator.await_record("leading")
        for name in names:  # both see each of them at the same time
            create(api(), jobs, job(name, 2))
        for name in names:
            until(f"pods of {name}", lambda name=name: pod_count(jobs, name) == 2, details=text)
        until("an event for each job", lambda: conflicts(jobs) == names, details=text)
        taken = {name: installation_of(jobs, name) for name in names}
        for holder, (letter, operator) in operators.items():
            others = [f"{jobs}/{name}" for name in names if taken[name] != holder]
            left = operator.records("ignored a job of another installation")
            expect(sorted(record["job"] for record in left) == others, f"{others}: {left}")
            for name in names:
                if taken[name] == holder:
                    expect(f"rendezvous-{letter}:" in rendezvous_of(jobs, name), rendezvous_of(jobs, name))

        # Where the one that has claimed a job is gone, the annotation keeps the other from it, until somebody removes that.
        gone = taken["job0"]
        operators.pop(gone)[1].process.kill()
        (heir, (letter, operator)), = operators.items()
        status, _ = api().request("PATCH", JOBS.format(jobs) + "/job0", {"metadata": {"annotations": {INSTALLATION: None}}}, MERGE)
        expect(status == 200, status)
        until("the other runs it", lambda: installation_of(jobs, "job0") == heir, details=text)
        until("its workers are sent to the other", lambda: f"rendezvous-{letter}:" in rendezvous_of(jobs, "job0"), details=text)
        api().request("DELETE", JOBS.format(jobs) + "/job0")
        until("and lets it go", lambda: finalizers(jobs, "job0") is None, details=text)


def test_takes_over_the_jobs_of_an_installation_that_no_longer_renews_its_lease():
    system, jobs = make_namespace(api(), "system"), make_namespace(api(), "jobs")
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{system}/leases"
    status, answer = api().request("POST", leases, {"metadata": {"name": "gone"}, "spec": {
        "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z", "holderIdentity": "gone"}})
    expect(status == 201, answer)
    abandoned = job("a", 2, managedBy=HEIR)
    abandoned["metadata"]["annotations"] = {INSTALLATION: f"{system}/gone"}
    create(api(), jobs, abandoned)
    with Operator(PROGRAM, "--leader-elect", f"--namespace={system}", "--lease-name=heir-leader", f"--managed-by={HEIR}",
                  "--rendezvous-url=http://rendezvous-heir:1") as heir:
        until("it is left alone at first", lambda: heir.records("ignored a job of another installation"), details=heir.text)
        expect(installation_of(jobs, "a") == f"{system}/gone", "it was taken from an installation that may be alive")
        until("it is taken over", lambda: installation_of(jobs, "a") == f"{system}/heir-leader", details=heir.text)
        until("its pods", lambda: pod_count(jobs, "a") == 2, details=heir.text)
        api().request("DELETE", JOBS.format(jobs) + "/a")
        until("and let go", lambda: finalizers(jobs, "a") is None, details=heir.text)


def label(namespace, value):
    status, answer = api().request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"team": value}}}, MERGE)
    expect(status == 200, answer)


def test_runs_the_jobs_of_the_namespaces_that_its_selector_finds():
    system, ours, late, theirs = (make_namespace(api(), name) for name in ("system", "ours", "late", "theirs"))
    label(ours, ours)
    with contextlib.ExitStack() as stack:
        operator = stack.enter_context(Operator(PROGRAM, f"--namespace={system}", f"--namespace-selector=team in ({ours})"))
        operator.await_record("leading")
        for namespace in (theirs, late, ours):
            create(api(), namespace, job("a", 2))
        until("pods of ours", lambda: pod_count(ours, "a") == 2, details=operator.text)
        expect(finalizers(late, "a") == [] and pod_count(late, "a") == 0, "a namespace without the label was touched")
        label(late, ours)
        until("pods of the namespace that was labelled", lambda: pod_count(late, "a") == 2, details=operator.text)
        until("two jobs in the metrics", lambda: jobs_counted(operator) == 2, details=operator.text)
        label(late, None)
        until("its job leaves the metrics", lambda: jobs_counted(operator) == 1, details=operator.text)
        expect(pod_count(late, "a") == 2, "pods were deleted with the label")
        expect(finalizers(theirs, "a") == [] and pod_count(theirs, "a") == 0, "a namespace without the label was touched")
