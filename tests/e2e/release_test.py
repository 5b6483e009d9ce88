"""The life of a release of the chart while a job trains: test, upgrade, rollback, uninstall, install again.

The operator acts with the rights that the chart gives to its service account, as in all these tests.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import jobs
import documented
import ledger
from cases import LIMIT, expect, until

RELEASE = ("lockstep", "--namespace", "lockstep-system")
CHART = str(jobs.ROOT / "charts" / "lockstep")


def helm(verb, *arguments):
    done = subprocess.run(["helm", verb, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
    expect(done.returncode == 0, f"helm {verb}: {done.stdout}{done.stderr}")
    return done.stdout


def install():
    subprocess.run([jobs.ROOT / "tests" / "e2e" / "install-lockstep"], check=True, timeout=LIMIT)


def operators():
    return {pod["metadata"]["uid"] for pod in jobs.get("--namespace", "lockstep-system", "pods",
                                                       "--selector=app.kubernetes.io/name=lockstep")["items"]}


def goes_on(job, pods, round_number):
    """The same pods make further steps in the same round."""
    job.until_step(ledger.newest_commit(job.ledger) + 20)
    expect(job.newest_ranks() == (round_number, {0, 1}), f"another round: {job.newest_ranks()}")
    expect(job.uids() == pods, "a pod was replaced")


def newer_chart(folder):
    """The chart of a release that is newer than the operator: the runPolicy of its definition has one field more."""
    chart = pathlib.Path(folder, "lockstep")
    shutil.copytree(CHART, chart)
    definition = chart / "files" / "distributedtrainingjobs.yaml"
    text, count = re.subn(r"^( +)startupDeadlineSeconds:", r"\1futureSeconds: {type: integer}\n\g<0>", definition.read_text(), flags=re.MULTILINE)
    expect(count == 1, f"startupDeadlineSeconds is {count} times a field")
    definition.write_text(text)
    return str(chart)


def history(job):
    """What of the job's status no change of the release may touch."""
    status = job.status()
    return {key: status.get(key) for key in ("startTime", "attempt", "rendezvous", "restarts")}


def test_training_outlives_upgrade_rollback_and_uninstall(folder):
    """The upgrade brings a field that the operator does not know: a job that uses it is held until the rollback, and trains."""
    with jobs.running(jobs.manifest("released", replicas=2, epochs=200, model=jobs.SLOW), with_ledger=True) as job:
        round_number, pods, old = job.until_ranks(2), job.uids(), operators()
        job.until("the round in its status", lambda: job.status().get("rendezvous", {}).get("round") == round_number)
        before = history(job)
        try:
            helm("upgrade", *RELEASE[:1], newer_chart(folder), *RELEASE[1:], "--reuse-values", "--set-string", "podAnnotations.version=next",
                 "--wait", "--timeout=10m")
            until("the operators before have gone", lambda: not operators() & old)
            goes_on(job, pods, round_number)
            expect((job.condition("Stalled") or {}).get("status") != "True", f"{job.condition('Stalled')}")
            job.kubectl("patch", "dtj", job.name, "--type=merge", '--patch={"spec": {"runPolicy": {"futureSeconds": 1}}}')
            stalled = job.until_condition("Stalled")
            expect(stalled["reason"] == "VersionMismatch" and "spec.runPolicy.futureSeconds" in stalled["message"], f"{stalled}")
            goes_on(job, pods, round_number)

            helm("rollback", *RELEASE, "--wait", "--timeout=10m")
            job.until("it is no longer held", lambda: job.condition("Stalled")["status"] == "False")
            goes_on(job, pods, round_number)
            expect(history(job) == before, f"{history(job)}, before: {before}")

            helm("uninstall", *RELEASE, "--wait", "--timeout=10m")
            until("no operator is left", lambda: not operators())
            expect(job.get()["metadata"]["uid"], "the job went with the release")
            goes_on(job, pods, round_number)
        finally:
            install()
        goes_on(job, pods, round_number)
        # The new operator knows the job: it mends it.
        os.kill(job.rank_process(sorted(pods)[0]), signal.SIGKILL)
        job.until_ranks(2, after=round_number)
        expect(job.uids() == pods, "a pod was replaced")


def test_helm_test_asks_a_release():
    expect("Succeeded" in helm("test", *RELEASE, "--timeout=10m"), "helm test does not say Succeeded")
    jobs.kubectl("--namespace", "lockstep-system", "scale", "deployment", "lockstep", "--replicas=0")
    try:
        until("no operator is left", lambda: not operators())
        done = subprocess.run(["helm", "test", *RELEASE, "--timeout=10m"], capture_output=True, text=True, timeout=LIMIT, check=False)
        expect(done.returncode != 0, "helm test passes without an operator")
    finally:
        jobs.kubectl("--namespace", "lockstep-system", "scale", "deployment", "lockstep", "--replicas=2")
        jobs.kubectl("--namespace", "lockstep-system", "rollout", "status", "deployment", "--timeout=10m")


def test_commands_of_the_chart_s_page_do_what_they_say():
    try:
        for command in documented.IN_A_RELEASE:
            if command.startswith("helm test"):
                jobs.kubectl("--namespace", "lockstep-system", "rollout", "status", "deployment", "--timeout=10m")
            done = subprocess.run(["bash", "-c", command], cwd=jobs.ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
            expect(done.returncode == 0, f"{command}: {done.stdout}{done.stderr}")
    finally:
        install()
