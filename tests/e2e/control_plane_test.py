"""A running job survives while the API server does not answer and no operator runs: killed ranks recover, and status.restarts and
status.goodput report them afterwards.

LOCKSTEP_LONG=1 adds an outage of ten minutes.
"""
import contextlib
import os
import pathlib
import signal
import time

import pytest

import jobs
import ledger
from cases import LIMIT, expect, until

EPOCHS = 8


def manifest(name, epochs=EPOCHS):
    return jobs.manifest(name, replicas=3, elastic=(1, 4), epochs=epochs, model=jobs.SLOW)


def operators():
    """Process ids of the operators of this cluster, as this machine sees them."""
    pods = {pod["metadata"]["name"] for pod in jobs.get("--namespace", "lockstep-system", "pods")["items"]}
    found = jobs.processes("lockstep-operat", variable="POD_NAME")
    return [pid for name, processes in found.items() if name in pods for pid, _ in processes]


@contextlib.contextmanager
def no_control_plane():
    """The API server is stopped, and the operators that hosted the rendezvous are killed. The ones that the kubelets start instead cannot lead."""
    api_server = int(pathlib.Path(os.environ["LOCKSTEP_CLUSTER"], "pids", "kube-apiserver").read_text().split()[0])
    victims = operators()
    expect(victims, "no operator runs")
    os.kill(api_server, signal.SIGSTOP)
    try:
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        yield
    finally:
        os.kill(api_server, signal.SIGCONT)


def until_trained(job, after, count=3):
    """Waits, without the API server, for a round later than `after` in which that many ranks make steps; returns its number."""
    def trained():
        newest, ranks = job.newest_ranks()
        return newest > after and ranks == set(range(count)) and newest
    return until(f"{count} ranks train in a round later than {after}", trained)


def kill_a_rank(job, pod):
    """Returns the seconds from the kill to the next step of the others."""
    before = job.newest_ranks()[0]
    killed = time.time()
    os.kill(job.rank_process(pod), signal.SIGKILL)
    until_trained(job, before)
    first = min(r["time"] for r in job.commits() if r["round"] > before)
    print(f"     killed rank of {pod} -> next step: {first - killed:.2f} s", flush=True)
    return first - killed


def expect_records(job, *pods):
    records = job.status()["restarts"]
    for pod in pods:
        expect(any(pod in record["message"] for record in records), f"no record names {pod}: {records}")


def check_outage(name, epochs, outage_seconds):
    with jobs.running(manifest(name, epochs), with_ledger=True) as job:
        job.until_ranks(3)
        job.until_step(100)
        uids = job.uids()
        pods = sorted(uids)
        with no_control_plane():
            end = time.monotonic() + outage_seconds
            for victim in (pods[1], pods[0]):
                kill_a_rank(job, victim)
            until("the end of the outage", lambda: time.monotonic() >= end, outage_seconds + LIMIT)
            kill_a_rank(job, pods[2])
        expect(ledger.newest_commit(job.ledger) < epochs * jobs.STEPS_PER_EPOCH - 1, "the job has ended before the API server is back")
        until_nodes_are_ready()
        job.until_step(ledger.newest_commit(job.ledger) + 50)
        expect(job.uids() == uids, f"pods were replaced: they were {uids}, are {job.uids()}")
        job.quickly()
        last = epochs * jobs.STEPS_PER_EPOCH - 1
        until("the last step", lambda: ledger.newest_commit(job.ledger) == last, 3 * outage_seconds + LIMIT)
        job.until_complete()
        job.expect_exactly_once()
        expect_records(job, *pods)
        job.expect_true_goodput()


def until_nodes_are_ready():
    """The node controller takes nodes for lost after a long outage, until their kubelets are back."""
    def ready():
        conditions = [c for node in jobs.ask("/api/v1/nodes")["items"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
        return all(c["status"] == "True" for c in conditions)
    until("all nodes are ready", ready)


def test_trains_on_without_api_server_and_operator():
    check_outage("no-control-plane", EPOCHS, 0)


@pytest.mark.skipif(os.environ.get("LOCKSTEP_LONG") != "1", reason="LOCKSTEP_LONG=1 runs it")
def test_trains_on_through_ten_minutes_without_them():
    check_outage("ten-minutes", 100, 600)


def test_books_the_standstill_of_a_pod_that_nobody_could_replace():
    with jobs.running(manifest("unreplaced", epochs=4), with_ledger=True) as job:
        before = job.until_ranks(3)
        job.until_step(100)
        victim = sorted(job.uids())[1]
        with no_control_plane():
            os.kill(job.supervisor(victim), signal.SIGKILL)
            stopped = time.monotonic()
            until("15 s without training", lambda: time.monotonic() > stopped + 15)
        job.until_ranks(3, after=before)
        job.quickly()
        job.until_complete()
        job.expect_exactly_once()
        records = job.status()["restarts"]
        expect(any(r.get("recoverySeconds", 0) >= 15 for r in records), f"no record has the 15 s: {records}")
        job.expect_true_goodput()


def test_reports_the_end_of_a_job_that_no_operator_saw():
    epochs = 4
    with jobs.running(manifest("unseen", epochs), with_ledger=True) as job:
        job.until_ranks(3)
        job.until_step(100)
        victim = sorted(job.uids())[1]
        with jobs.no_operator():
            kill_a_rank(job, victim)
            job.quickly()
            until("the end of all pods", lambda: {pod["status"]["phase"] for pod in job.pods()} == {"Succeeded"})
        job.until_complete()
        job.expect_exactly_once()
        status = job.status()
        last = epochs * jobs.STEPS_PER_EPOCH
        expect(status["progress"]["step"] == last, f"the last step is {last}: {status['progress']}")
        expect(status["checkpoint"]["step"] == last, f"the last step is {last}: {status['checkpoint']}")
        expect_records(job, victim)
        job.expect_true_goodput(precision=1)  # the kubelet reports whole seconds
