"""What a job asks of the cluster beside its pods, and a spec that goes wrong while the job trains."""
import json

import jobs
from cases import expect, until

KINDS = ("services", "configmaps", "serviceaccounts", "networkpolicies", "poddisruptionbudgets", "horizontalpodautoscalers")


def objects_of(job):
    """Kinds of the objects beside the pods, sorted."""
    items = jobs.get("--namespace", job.space, ",".join(KINDS), f"--selector=lockstep.dev/job={job.name}")["items"]
    return sorted(item["kind"] for item in items)


def test_has_objects_of_its_own_and_takes_them_along():
    manifest = jobs.manifest("owner", replicas=2, elastic=(1, 3))
    spec = manifest["spec"]
    spec["network"] = {"networkPolicy": "Isolate"}
    spec["worker"]["createServiceAccount"] = True
    spec["schedulingPolicy"] = {"podDisruptionBudget": True}
    spec["elasticPolicy"]["metrics"] = [  # never reached, because another pod would be another round
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 100_000}}}]
    with jobs.running(jobs.all_at_once(manifest)) as job:
        expected = ["ConfigMap", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount"]
        job.until("its objects", lambda: objects_of(job) == expected)
        job.until("its pods", lambda: len(job.pods()) == 2)
        accounts = {pod["spec"]["serviceAccountName"] for pod in job.pods()}
        expect(accounts == {"owner-worker"}, f"accounts: {accounts}")
        status = job.until_complete()
        expect(status["rendezvous"]["round"] == 1 and status.get("restarts", []) == [], f"it was disturbed: {status}")
        job.until("nothing scales a finished job", lambda: "HorizontalPodAutoscaler" not in objects_of(job))
    until("nothing is left of the job", lambda: objects_of(job) == [], details=lambda: str(objects_of(job)))


def test_takes_its_checkpoints_along_where_it_is_told_to():
    """Two jobs, one after the other, on one place; what the first one stored at its end stays."""
    first = jobs.manifest("stays", epochs=1)
    first["spec"]["checkpoint"]["intervalSteps"] = 10_000
    second = jobs.manifest("goes", replicas=2, epochs=2)
    second["spec"]["checkpoint"].update(uri=first["spec"]["checkpoint"]["uri"], keepLast=20, deleteWithJob=True)
    with jobs.running(first) as job:
        job.until_complete()
        place = job.checkpoint_folder()
    kept = stored_in(place)
    expect(len(kept) == 1, f"{place} has {kept}")
    with jobs.running(second) as job:
        job.until_complete()
        expect(stored_in(place) > kept, f"{stored_in(place)} after the second job")
        job.kubectl("delete", "dtj", job.name, "--wait=false")
        until("the job is gone", lambda: job.name not in names_of_jobs(job), details=lambda: str(names_of_jobs(job)))
        expect(stored_in(place) == kept, f"{stored_in(place)} after its end, {kept} before")
        until("no pod is left", lambda: not job.pods())


def test_is_deleted_when_its_time_after_the_end_has_passed():
    """With the rights that the chart gives the operator."""
    manifest = jobs.manifest("expires", epochs=1)
    manifest["spec"]["runPolicy"] = {"ttlSecondsAfterFinished": 1}
    all_jobs = f"/apis/lockstep.dev/v1alpha1/namespaces/{jobs.namespace()}/distributedtrainingjobs"
    before = jobs.ask(all_jobs)["metadata"]["resourceVersion"]  # so that nothing is missed, however short its life
    with jobs.running(manifest) as job:
        seen = set()

        def is_gone(event):
            if event["object"]["metadata"]["name"] == job.name:
                seen.update(c["type"] for c in event["object"].get("status", {}).get("conditions", []) if c["status"] == "True")
                return event["type"] == "DELETED"
            return False
        jobs.api().watch(f"{all_jobs}?watch=1&resourceVersion={before}", is_gone)
        expect("Complete" in seen and not seen & {"Stalled", "Failed"}, f"its conditions were {seen}")
    until("nothing is left of the job", lambda: objects_of(job) == [] and not job.pods(), details=lambda: str(objects_of(job)))


def stored_in(place):
    return {path.parent.name for path in place.glob("step-*/manifest.json")}


def names_of_jobs(job):
    return [item["metadata"]["name"] for item in jobs.get("--namespace", job.space, "dtj")["items"]]


def test_trains_on_while_its_spec_is_invalid():
    with jobs.running(jobs.manifest("mistaken", replicas=2, epochs=4, model=jobs.SLOW), with_ledger=True) as job:
        job.until_step(20)
        pods = job.uids()

        environment = "/spec/worker/template/spec/containers/0/env"

        def patch(operation):
            job.kubectl("patch", "dtj", job.name, "--type=json", "--patch", json.dumps([operation]))
        patch({"op": "add", "path": environment + "/0", "value": {"name": "LOCKSTEP_RANK", "value": "0"}})
        stalled = job.until_condition("Stalled")
        expect("LOCKSTEP_RANK is set by the operator" in stalled["message"], f"{stalled}")
        step = jobs.ledger.newest_commit(job.ledger)
        job.until_step(step + 50)
        expect(job.uids() == pods, f"pods were {pods}, are {job.uids()}")
        patch({"op": "remove", "path": environment + "/0"})
        job.until("it is no longer stalled", lambda: job.condition("Stalled")["status"] == "False")
        job.quickly()
        job.until_complete()
        job.expect_exactly_once()
