"""Jobs that are to end as a quiet run does, whatever is done to them: every sample of every epoch used exactly once, and, by
`determinism: World`, the same weights bit for bit."""
import contextlib
import functools
import hashlib
import json

import jobs
from cases import expect

# Of the 16 micro-batches of a step, each of three ranks has five or six.
SLOW = jobs.slow_model(milliseconds=4)


def manifest(name, replicas=3, training=None, **sections):
    job = jobs.manifest(name, replicas=replicas, elastic=(1, 4), **{"determinism": "World", "epochs": jobs.LONG, "model": SLOW, **(training or {})})
    job["spec"].update(sections)
    return job


@functools.cache
def quiet_bits(training):
    """What one rank comes to that nobody disturbs. `training`: the section, as JSON."""
    name = f"quiet-{hashlib.sha256(training.encode()).hexdigest()[:8]}"
    with jobs.running(manifest(name, replicas=1, training=json.loads(training)), with_ledger=True) as job:
        job.quickly()
        job.until_complete()
        return job.final_bits()


@contextlib.contextmanager
def unharmed(job, begin=50):
    """Runs a job that is in full swing while the caller does it harm, then judges."""
    with jobs.running(job, with_ledger=True) as job:
        job.until_ranks(3)
        job.until_step(begin)
        yield job
        job.complete_this_epoch()
        job.expect_exactly_once()
        quiet = quiet_bits(json.dumps({**job.job["spec"]["training"], "evaluation": {"everyEpochs": 1}}, sort_keys=True))
        expect(job.final_bits() == quiet, "the final weights differ from those of a quiet run")
