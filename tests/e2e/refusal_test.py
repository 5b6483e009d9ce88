"""Bad input: refused at apply where the schema sees it; else the job says what is wrong, where, and what would be right."""

import jobs
from cases import expect, until

TRAINER = ("spec", "worker", "template", "spec", "containers", 0)
TRAINING = ("spec", "training")


def test_apply_refuses():
    base = jobs.manifest("refused", elastic=(1, 4))
    for path, value, words in (
            ((*TRAINING, "globalBatchsize"), 64, "globalBatchsize"),
            ((*TRAINER, "imagePulPolicy"), "Always", "imagePulPolicy"),
            (("spec", "worker", "replicas"), -1, "spec.worker.replicas"),
            ((*TRAINING, "optimizer", "learningRate"), -0.1, "spec.training.optimizer.learningRate"),
            (("spec", "elasticPolicy"), {"minReplicas": 4, "maxReplicas": 2}, "minReplicas"),
            ((*TRAINING, "model"), {"name": "cnnn"}, "spec.training.model.name")):
        try:
            jobs.Job(jobs.changed(base, path, value)).apply()
        except jobs.Failure as refused:
            expect(words in refused.text, f"{'.'.join(map(str, path))} = {value}: {words} is not named: {refused.text}")
        else:
            raise AssertionError(f"{'.'.join(map(str, path))} = {value} was accepted")
    left = jobs.get("--namespace", jobs.namespace(), "dtj")["items"]
    expect(left == [], f"jobs were made: {left}")


def expect_failed(job, reason, *words):
    """Failed for good, explained where `kubectl describe` shows it, with no pod at work or coming back."""
    condition = job.until_condition("Failed")
    expect(condition["reason"] == reason, f"reason {condition['reason']}, not {reason}: {condition['message']}")
    described = job.kubectl("describe", "dtj", job.name)
    for word in words:
        expect(word in condition["message"], f"{word} is not in: {condition['message']}")
    expect(reason in described, described)
    until("no pod is at work", lambda: all(p["status"]["phase"] in ("Failed", "Succeeded") for p in job.pods()), details=job.describe)
    restarts = [c["restartCount"] for pod in job.pods() for c in pod["status"].get("containerStatuses", [])]
    expect(not any(restarts), f"containers were restarted: {restarts}")


def test_an_unknown_path_of_data_fails_the_job():
    job = jobs.manifest("no-data", replicas=2, data={"format": "idx", "path": "/nowhere"})
    with jobs.running(job) as started:
        expect_failed(started, "UserError", "spec.training.data.path", "/nowhere")


def test_a_missing_bucket_fails_the_job():
    job = jobs.manifest("no-bucket", replicas=2)
    job["spec"]["checkpoint"]["uri"] = "s3://no-such-bucket/job"
    with jobs.running(job) as started:
        expect_failed(started, "ObjectStoreUnavailable", "spec.checkpoint.uri", "no-such-bucket")


def test_an_unreachable_store_is_waited_for_and_then_fails_the_job():
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "nowhere"}, "stringData": {
        "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}}
    jobs.kubectl("--namespace", jobs.namespace(), "apply", "--filename=-", stdin=jobs.json.dumps(secret))
    job = jobs.manifest("no-store", replicas=2)
    job["spec"]["checkpoint"]["secretRef"]["name"] = "nowhere"
    job["spec"]["failurePolicy"] = {"storePatienceSeconds": 20}
    with jobs.running(job) as started:
        degraded = started.until_condition("Degraded")
        expect(degraded["reason"] == "StoreUnavailable" and "the state to begin from" in degraded["message"], f"{degraded}")
        expect_failed(started, "ObjectStoreUnavailable", "AWS_ENDPOINT_URL", "spec.checkpoint.uri")


def test_wrong_credentials_fail_the_job_and_are_not_told():
    wrong = "wrong-and-not-to-be-shown"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong"}, "stringData": {
        "AWS_ACCESS_KEY_ID": jobs.os.environ["AWS_ACCESS_KEY_ID"], "AWS_SECRET_ACCESS_KEY": wrong,
        "AWS_ENDPOINT_URL": jobs.os.environ["AWS_ENDPOINT_URL"], "AWS_REGION": jobs.os.environ["AWS_REGION"]}}
    jobs.kubectl("--namespace", jobs.namespace(), "apply", "--filename=-", stdin=jobs.json.dumps(secret))
    job = jobs.manifest("wrong-key", replicas=2)
    job["spec"]["checkpoint"]["secretRef"]["name"] = "wrong"
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}  # their logs are read
    with jobs.running(job) as started:
        expect_failed(started, "ObjectStoreUnavailable", "spec.checkpoint.uri")
        started.expect_not_shown(wrong)


def test_a_missing_secret_is_waited_for():
    job = jobs.manifest("no-secret")
    job["spec"]["checkpoint"]["secretRef"]["name"] = "later"
    with jobs.running(job) as started:
        stalled = started.until_condition("Stalled")
        expect(stalled["reason"] == "SecretMissing", f"{stalled}")
        expect("spec.checkpoint.secretRef" in stalled["message"] and '"later"' in stalled["message"], stalled["message"])
        secret = jobs.get("--namespace", jobs.namespace(), "secret", jobs.SECRET)
        secret["metadata"] = {"name": "later"}
        jobs.kubectl("--namespace", jobs.namespace(), "apply", "--filename=-", stdin=jobs.json.dumps(secret))
        started.until_complete()


def test_what_no_schema_can_refuse_fails_by_name():
    job = jobs.manifest("refused-later", schedule={"minLearningRate": 1})
    with jobs.running(job) as started:
        expect_failed(started, "InvalidSpec", "spec.training.schedule.minLearningRate", "must not exceed optimizer.learningRate")
        expect(started.pods() == [], "pods were made")
