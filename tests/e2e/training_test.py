"""Jobs that nobody disturbs: they learn, on any number of workers the same, are seen by Prometheus and leave checkpoints."""
import json
import os
import subprocess

import jobs
from cases import LIMIT, expect, until

EXAMPLE = jobs.ROOT / "crds/examples/fashion-mnist.yaml"
STEPS = 469  # of one epoch


def example(replicas, epochs):
    """crds/examples/fashion-mnist.yaml with another number of workers and of epochs, under a name and a URI of its own."""
    text = jobs.kubectl("create", "--dry-run=client", f"--filename={EXAMPLE}", "--output=json")
    job = json.loads(text)
    job["metadata"] = {"name": f"fashion-mnist-{replicas}"}
    job["spec"]["worker"]["replicas"] = replicas
    job["spec"]["training"]["epochs"] = epochs
    job["spec"]["checkpoint"]["uri"] = f"s3://lockstep/e2e-{os.getpid()}/fashion-mnist-{replicas}"
    return jobs.all_at_once(job)


def train(replicas, epochs, meanwhile=lambda job: None):
    """The test accuracy."""
    with jobs.running(example(replicas, epochs)) as job:
        job.until_condition("Progressing")
        meanwhile(job)
        status = job.until_complete()
        accuracy = status["progress"]["evaluation"]["accuracy"]
        print(f"     {replicas} workers: test accuracy {accuracy}, "
              f"{status['progress']['samplesPerSecond']:.0f} samples/s", flush=True)
        expect(status["progress"]["step"] == status["progress"]["totalSteps"] == epochs * STEPS, status["progress"])
        expect(status.get("restarts", []) == [] and status["rendezvous"]["round"] == 1, f"it was disturbed: {status}")
        expect_checkpoints(job, status)
        reasons = lambda: {event["reason"] for event in jobs.get("--namespace", jobs.namespace(), "events")["items"]
                           if event["involvedObject"]["name"] == job.name}
        job.until("its events", lambda: {"PodsCreated", "TrainingDone"} <= reasons())
    return accuracy


def expect_checkpoints(job, status):
    """keepLast of them are in the bucket, each with a manifest and its shards; the status names the newest."""
    found = {}
    for path in job.checkpoint_folder().glob("step-*/manifest.json"):
        found[int(path.parent.name.removeprefix("step-"))] = json.loads(path.read_text())
        for shard in json.loads(path.read_text())["shards"]:
            expect((path.parent / shard["name"]).stat().st_size == shard["bytes"], f"{path.parent / shard['name']}: size")
    end = status["progress"]["step"]
    expect(len(found) == 3 and max(found) == end, f"checkpoints of steps {sorted(found)}")
    expect(status["checkpoint"]["step"] == end, status["checkpoint"])


def test_two_workers_reach_0_90():
    def looked_at(job):
        def series(metric):
            return jobs.prometheus(f'{metric}{{job_name="{job.name}",namespace="{jobs.namespace()}"}}')
        job.until("Prometheus has both workers' steps", lambda: len(
            {labels["pod"] for labels, value in series("lockstep_train_steps_total") if value > 0}) == 2)
        job.until("Prometheus has the operator's view",
                  lambda: [value for _, value in series("lockstep_job_world_size")] == [2.0])
        columns = jobs.kubectl("--namespace", jobs.namespace(), "get", "dtj", job.name)
        expect("STEP" in columns and "Running" in columns, columns)
        job.expect_not_shown(os.environ["AWS_SECRET_ACCESS_KEY"])
        # The API server looks at the pods that are there, and warns of those that the standard forbids.
        label = subprocess.run(["kubectl", "label", "namespace", jobs.namespace(), "--dry-run=server",
                                "pod-security.kubernetes.io/enforce=restricted"], capture_output=True, text=True, timeout=LIMIT, check=True)
        expect("Warning" not in label.stderr, label.stderr)
    accuracy = train(2, epochs=4, meanwhile=looked_at)  # as many as the example has
    expect(accuracy >= 0.90, f"test accuracy {accuracy}")


def test_one_and_three_workers_learn_the_same():
    one, three = train(1, epochs=1), train(3, epochs=1)
    expect(abs(one - three) <= 0.01 and one > 0.8, f"test accuracy of one worker {one}, of three {three}")


def test_a_new_job_goes_on_from_the_checkpoint_of_another():
    job = jobs.manifest("resumed", replicas=2, resume="Auto")
    with jobs.running(job) as first:
        first.until_complete()
    job["spec"]["training"]["epochs"] = 2
    with jobs.running(job, with_ledger=True) as second:
        second.until_complete()
        steps = sorted(jobs.ledger.history(second.ledger))
        expect(steps == list(range(469, 938)), f"{len(steps)} steps from {steps[:1]} to {steps[-1:]}, not the second epoch")


def test_saves_when_asked():
    job = jobs.changed(jobs.manifest("asked", replicas=2, epochs=100), ["spec", "checkpoint", "intervalSteps"], None)
    with jobs.running(job) as running:
        running.until_condition("Progressing")
        reached = running.until("some steps in the status", lambda: running.status().get("progress", {}).get("step"))
        running.kubectl("annotate", "dtj", running.name, "lockstep.dev/save=before the upgrade")
        stored = running.until("a checkpoint in the status", lambda: running.status().get("checkpoint"))
        expect(stored["step"] >= reached, f"at step {reached} one was asked for, and it is of step {stored['step']}")
        records_when_asked(running)


def records_when_asked(running):
    def reported():
        return [event["note"] for event in jobs.get("--namespace", jobs.namespace(), "events.events.k8s.io")["items"]
                if event["regarding"]["name"] == running.name and event["reason"] == "ProfileRefused"]
    running.kubectl("annotate", "dtj", running.name, "lockstep.dev/profile=101")
    running.until("an event that says what is allowed", lambda: reported() and "1 to 100" in reported()[0])
    running.kubectl("annotate", "--overwrite", "dtj", running.name, "lockstep.dev/profile=3")
    traces = lambda: sorted(path.name for path in running.checkpoint_folder().glob("profile/steps-*.json"))
    running.until("a trace of each rank", lambda: len(traces()) == 2)
    first, last = (int(number) for number in traces()[0].split("-")[1:3])
    expect(last - first == 2 and traces() == [f"steps-{first}-{last}-rank-{rank}.json" for rank in (0, 1)], traces())


def test_deletion_leaves_nothing():
    with jobs.running(jobs.manifest("deleted", replicas=2, epochs=50)) as job:
        job.until_condition("Progressing")
        job.delete()
    kinds = "pods,services,configmaps"
    left = until("garbage collection", lambda: not [
        item for item in jobs.get("--namespace", jobs.namespace(), kinds, "--selector=lockstep.dev/job=deleted")["items"]])
    expect(left, "objects are left")
