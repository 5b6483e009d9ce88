#!/usr/bin/env python3
"""A few minutes of two jobs in a cluster, with enough happening to them that every panel has something to show; then record.py.

    tests/e2e/with-cluster --lockstep tests/dashboards/eventful.py ANSWERS.json
    tests/e2e/with-cluster --lockstep tests/dashboards/eventful.py ANSWERS.json trainer

With `trainer` the job is an unchanged program, a Trainer of Hugging Face.
"""
import os
import pathlib
import sys
import time

import record  # beside this file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import jobs  # noqa: E402
import program_test  # noqa: E402

SCRAPE_INTERVAL = 2  # tests/cluster/config/prometheus.yaml
QUIET = 40  # seconds between two events
FIRST = 150  # seconds of training before the picture begins: the recording rules look back for two minutes


def eventful_job():
    job = jobs.manifest("fashion-mnist", replicas=3, elastic=(1, 4), epochs=60, model=jobs.SLOW,
                        schedule={"name": "cosine", "warmupSteps": 100})
    job["spec"]["healthPolicy"] = {"straggler": {}}
    return job


def trouble(job):
    """A killed process, a deleted pod, another size, all processes killed."""
    pod, pids = sorted(job.ranks().items())[1]
    job.kill({pod: pids})
    time.sleep(QUIET)
    job.kubectl("delete", "pod", sorted(job.uids())[2], "--force", "--grace-period=0")
    time.sleep(QUIET)
    job.kubectl("scale", "dtj", job.name, "--replicas=4")
    job.until_ranks(4)
    time.sleep(QUIET)
    job.kill(job.ranks())
    time.sleep(QUIET)


def trouble_for_a_program(job):
    """A killed process and a stopped one."""
    for pod, signal_name in zip(sorted(job.uids()), ("KILL", "STOP"), strict=True):
        job.kill({pod: program_test.pythons(job, pod)}, signal_name)
        time.sleep(2 * QUIET)


def main():
    if sys.argv[2:] not in ([], ["trainer"]):
        sys.exit(__doc__)
    is_program = len(sys.argv) > 2
    if "LOCKSTEP_CLUSTER" not in os.environ:
        sys.exit("no cluster: LOCKSTEP_CLUSTER is not set")
    manifest = program_test.trainer(100_000) if is_program else eventful_job()
    with jobs.running(manifest, with_ledger=True) as job, jobs.running(jobs.manifest("small", epochs=2)):
        job.until("steps", lambda: job.status().get("progress", {}).get("step", 0) > 0)
        time.sleep(FIRST)
        start = time.time() - QUIET
        (trouble_for_a_program if is_program else trouble)(job)
        minutes = (time.time() - start) / 60
        prometheus = record.Prometheus(os.environ["LOCKSTEP_PROMETHEUS_URL"], time.time(), minutes, SCRAPE_INTERVAL)
        record.record(sys.argv[1], prometheus, {"namespace": jobs.namespace(), "job_name": job.name})


if __name__ == "__main__":
    main()
