"""Jobs train on while parts of the cluster are away: the operator, its certificate, a node. All jobs of the cluster would feel it.

LOCKSTEP_LONG=1 adds the new certificate.
"""
import os
import signal
import subprocess
import time

import pytest

import jobs
from cases import LIMIT, expect, until
from unharmed import manifest, unharmed

CLUSTER = jobs.ROOT / "tests" / "cluster" / "cluster"


def slow(name):
    return jobs.manifest(name, replicas=3, elastic=(1, 4), epochs=jobs.LONG, model=jobs.SLOW)


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def test_trains_on_while_the_operator_restarts():
    with jobs.running(slow("operator-restart"), with_ledger=True) as job:
        first_round = job.until_ranks(3)
        pods = job.uids()
        before = {pod["metadata"]["uid"] for pod in jobs.get(*jobs.OPERATORS)["items"]}
        jobs.kubectl(*jobs.SYSTEM, "delete", *jobs.OPERATORS[2:], "--force", "--grace-period=0")
        reached = jobs.ledger.newest_commit(job.ledger)
        until("a new operator", lambda: any(pod["metadata"]["uid"] not in before and is_ready(pod) for pod in jobs.get(*jobs.OPERATORS)["items"]))
        job.until_step(reached + 100)
        expect(job.uids() == pods, "pods were replaced")
        expect(job.until_ranks(3) == first_round, "the round was broken")
        job.complete_this_epoch()
        job.expect_exactly_once()


def test_survives_a_failure_while_the_operator_is_away():
    away = manifest("operator-away")
    away["spec"]["elasticPolicy"]["growDelaySeconds"] = 2  # of a member that comes when the others have a round without it
    with unharmed(away) as job:
        before, ranks = job.newest_ranks()[0], job.ranks()
        victim = sorted(ranks)[1]
        with jobs.no_operator():
            job.kill({victim: ranks[victim]})
        job.until_ranks(3, after=before)
        expect({pod: pids for pod, pids in job.ranks().items() if pod != victim} ==
               {pod: pids for pod, pids in ranks.items() if pod != victim}, "a survivor's process was replaced")


@pytest.mark.skipif(os.environ.get("LOCKSTEP_LONG") != "1", reason="LOCKSTEP_LONG=1 runs it")
def test_follows_a_new_certificate():
    """The operator restarts with another CA. Ranks recover through it once the kubelet has updated the ConfigMap in the pods."""
    with jobs.running(manifest("certificate"), with_ledger=True) as job:
        before, pods = job.until_ranks(3), job.uids()
        first = authority_of(job)
        jobs.kubectl(*jobs.SYSTEM, "delete", "secret", "lockstep-rendezvous-tls")
        jobs.kubectl(*jobs.SYSTEM, "rollout", "restart", "deployment")
        job.until("another CA in the job's ConfigMap", lambda: authority_of(job) != first)
        os.kill(job.rank_process(sorted(pods)[0]), signal.SIGKILL)
        job.until_ranks(3, after=before)
        expect(job.uids() == pods, "a pod was replaced")
        job.complete_this_epoch()
        job.expect_exactly_once()


def authority_of(job):
    return jobs.get("--namespace", job.space, "configmap", f"{job.name}-config")["data"]["ca.crt"]


def test_survives_a_dead_node():
    spread = slow("dead-node")
    spread["spec"]["worker"]["template"]["spec"]["topologySpreadConstraints"] = [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
         "labelSelector": {"matchLabels": {"lockstep.dev/job": "dead-node"}}}]
    with jobs.running(spread, with_ledger=True) as job:
        job.until_ranks(3)
        operator = jobs.leader_of(job)["spec"]["nodeName"]
        on_node = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in job.pods()}
        victims = [pod for pod, node in on_node.items() if node != operator]
        expect(0 < len(victims) < 3, f"the scheduler put the pods badly for this test: {on_node}, operator on {operator}")
        number = on_node[victims[0]].removeprefix("node")
        survivors = {pod: pids for pod, pids in job.ranks().items() if pod not in victims}
        subprocess.run([CLUSTER, "kill-node", number], check=True, timeout=LIMIT)
        died = time.time()
        try:
            job.until_ranks(3 - len(victims))
            after = job.ranks()
            expect(all(after[pod] == pids for pod, pids in survivors.items()), f"survivors were {survivors}, are {after}")
        finally:
            subprocess.run([CLUSTER, "start-node", number], check=True, timeout=LIMIT)
        job.complete_this_epoch()
        job.expect_exactly_once()
        print(f"     dead node -> survivors' next step: {job.pause_after(died + 1):.1f} s", flush=True)
