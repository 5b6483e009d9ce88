"""Jobs whose size changes under way: by `kubectl scale`, by a network that is cut. Nothing is lost or doubled."""
import time

import jobs
from cases import expect


def measured_sizes(status):
    return {entry["worldSize"]: entry for entry in status.get("scaling", [])}


def until_measured(job, ranks):
    entry = job.until(f"{ranks} ranks are measured", lambda: measured_sizes(job.status()).get(ranks))
    expect(entry["samplesPerSecond"] > 0 and entry["steps"] >= 10, f"{entry}")
    expect(0 < entry["communication"] < 1 and 0 <= entry["data"] < 1, f"{entry}")


def test_follows_kubectl_scale():
    manifest = jobs.manifest("scaled", replicas=2, elastic=(1, 4), epochs=jobs.LONG, model=jobs.SLOW)
    with jobs.running(manifest, with_ledger=True) as job:
        job.until_ranks(2)
        first_pods = job.uids()
        until_measured(job, 2)
        for replicas in (4, 1, 3):
            job.kubectl("scale", "dtj", "scaled", f"--replicas={replicas}")
            job.until_ranks(replicas)
            job.until(f"{replicas} pods", lambda count=replicas: len(job.pods()) == count)
        kept = job.uids()
        expect(kept["scaled-worker-0"] == first_pods["scaled-worker-0"], "the first pod was replaced")
        until_measured(job, 3)
        status = job.complete_this_epoch()
        job.expect_exactly_once()
        expect(status.get("attempt", 0) == 0, f"scaling was charged to the budget: {status}")
        expect({2, 3} <= set(measured_sizes(status)), f"a size was measured and is not in the status: {status}")


def addresses_of_the_rendezvous():
    space = ("--namespace", "lockstep-system")
    services = [service["spec"]["clusterIP"] for service in jobs.get(*space, "services")["items"]]
    return [*jobs.addresses(*space).values(), *(address for address in services if address != "None")]


def test_survives_a_cut_between_a_pod_and_the_rendezvous():
    manifest = jobs.manifest("cut-rendezvous", replicas=3, elastic=(1, 4), epochs=jobs.LONG, model=jobs.SLOW)
    with jobs.running(manifest, with_ledger=True) as job:
        whole = job.until_ranks(3)
        before = {pod["metadata"]["name"]: job.rank_process(pod["metadata"]["name"]) for pod in job.pods()}
        victim = sorted(before)[1]
        with job.cut_off(victim, *addresses_of_the_rendezvous()):  # until it counts as dead
            without = job.until_ranks(2, after=whole)
        job.until_ranks(3, after=without)
        after = {pod: job.rank_process(pod) for pod in before}
        expect(after == before, f"rank processes were {before}, are {after}\n{job.describe()}")
        job.complete_this_epoch()
        job.expect_exactly_once()


def test_survives_a_cut_between_two_ranks():
    manifest = jobs.manifest("cut-peers", replicas=3, elastic=(1, 4), epochs=jobs.LONG, model=jobs.SLOW)
    with jobs.running(manifest, with_ledger=True) as job:
        job.until_ranks(3)
        pods = job.addresses()
        one, other = sorted(pods)[:2]
        reached = jobs.ledger.newest_commit(job.ledger)
        with job.cut_off(one, pods[other]):
            time.sleep(15)  # the fault: how long the network is cut
        job.until_step(reached + 200)
        job.until_ranks(3)
        job.complete_this_epoch()
        job.expect_exactly_once()
