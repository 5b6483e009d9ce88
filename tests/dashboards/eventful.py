#!/usr/bin/env python3
"""A few minutes of two jobs in a cluster, with enough happening to them that every panel has something to show; then record.py.

    tests/e2e/with-cluster bash -c 'tests/e2e/install-lockstep && tests/dashboards/eventful.py ANSWERS.json'
"""
import os
import pathlib
import sys
import time

import record  # beside this file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import jobs  # noqa: E402

SCRAPE_INTERVAL = 2  # tests/cluster/config/prometheus.yaml
QUIET = 40  # seconds between two events


def eventful_job():
    job = jobs.manifest("fashion-mnist", replicas=3, elastic=(1, 4), epochs=60, model=jobs.SLOW,
                        schedule={"name": "cosine", "warmupSteps": 100})
    job["spec"]["healthPolicy"] = {"straggler": {}}
    return job


def trouble(job):
    """A killed process, a deleted pod, another size, all processes killed."""
    job.until_ranks(3)
    time.sleep(QUIET)
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


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if "LOCKSTEP_CLUSTER" not in os.environ:
        sys.exit("no cluster: LOCKSTEP_CLUSTER is not set")
    start = time.time()
    with jobs.running(eventful_job(), with_ledger=True) as job, jobs.running(jobs.manifest("small", epochs=2)):
        trouble(job)
        minutes = (time.time() - start) / 60
        prometheus = record.Prometheus(os.environ["LOCKSTEP_PROMETHEUS_URL"], time.time(), minutes, SCRAPE_INTERVAL)
        record.record(sys.argv[1], prometheus, {"namespace": jobs.namespace(), "job_name": job.name})


if __name__ == "__main__":
    main()
