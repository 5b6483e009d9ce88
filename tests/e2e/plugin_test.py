"""`kubectl lockstep` as people use it: installed beside kubectl, on jobs that train in real pods, by a user who has the role `edit` in one
namespace and nothing else. With it the commands that README.md and docs/ show on a running job, as they stand.
"""
import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import jobs
import documented
import metrics_server
from build_folder import BUILD
from cases import ENDS_WITH_US, LIMIT, expect, until

NAME = "fashion-mnist"  # as in README.md
INSTALL = documented.IN_A_CLUSTER[0]


@functools.cache
def folder():
    """A fresh one for kubectl's plugin and the users' configurations, as long as this program runs."""
    made = tempfile.TemporaryDirectory(prefix="lockstep-plugin-")
    jobs.atexit.register(made.cleanup)
    line = INSTALL.replace("build/release", str(BUILD)).replace("/usr/local", made.name)
    expect(line.count(made.name) == 1, f"the README installs the plugin in another way: {INSTALL}")
    subprocess.run(line, shell=True, capture_output=True, timeout=LIMIT, check=True)
    return pathlib.Path(made.name)


@functools.cache
def user(role):
    """The kubeconfig of somebody with a built-in role in our namespace: what is typed needs no flags."""
    config = json.loads(jobs.kubectl("config", "view", "--raw", "--minify", "--output=json"))
    config["users"][0]["user"]["as"] = f"somebody-with-{role}"
    config["contexts"][0]["context"]["namespace"] = jobs.namespace()
    jobs.kubectl("--namespace", jobs.namespace(), "create", "rolebinding", role, f"--clusterrole={role}", f"--user=somebody-with-{role}")
    path = folder() / f"{role}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def environment(role="edit"):
    return {**os.environ, "KUBECONFIG": str(user(role)), "PATH": f"{folder()}/bin:{os.environ['PATH']}"}


def shell(line, code=0, role="edit", stdin=None):
    """What a line says, on both channels, and that it ends with this code."""
    done = subprocess.run(["bash", "-c", line], input=stdin, env=environment(role), cwd=folder(), text=True, timeout=LIMIT, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    expect(done.returncode == code, f"{line}: exit code {done.returncode}, not {code}\n{done.stdout}")
    return done.stdout


def lockstep(words, **options):
    return shell(f"kubectl lockstep {words}", **options)


def expect_in(text, *patterns):
    for pattern in patterns:
        expect(re.search(pattern, text, re.MULTILINE), f"no {pattern!r} in:\n{text}")


def until_said(words, *patterns):
    """What a command says when all of this is in it: the kubelets and the operator report some of it later than the ranks."""
    def said():
        text = lockstep(words)
        return all(re.search(pattern, text, re.MULTILINE) for pattern in patterns) and text
    return until(f"kubectl lockstep {words} says {patterns}", said, poll=0.5, details=lambda: lockstep(words))


@contextlib.contextmanager
def started(manifest):
    """A job that the user applies."""
    job = jobs.Job(manifest)
    job.keep_ledger()
    try:
        shell("kubectl apply --filename=-", stdin=json.dumps(job.job))
        yield job
    finally:
        job.delete()


@contextlib.contextmanager
def on_a_screen(line):
    """A command that goes on by itself; gives a function that reads what it has said. Ctrl-C ends it, if it has not ended."""
    with tempfile.TemporaryFile("w+") as screen:
        process = subprocess.Popen([*ENDS_WITH_US, "bash", "-c", line], env=environment(), stdout=screen, stderr=screen, text=True,
                                   start_new_session=True)

        def said():
            return os.pread(screen.fileno(), 1 << 24, 0).decode()
        try:
            yield said, process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(LIMIT)


def endless():
    """The README's job as far as its commands can tell, but it ends when we say; checkpoints are saved only when they are asked for."""
    job = jobs.manifest(NAME, replicas=2, elastic=(1, 4), epochs=10000, model=jobs.SLOW)
    job["spec"]["nprocPerNode"] = 2
    job["spec"]["checkpoint"]["intervalSteps"] = 10**6
    return job


def steps_in(text):
    return [int(step) for step in re.findall(r"^Progress +step (\d+) of ", text, re.MULTILINE)]


def status_tells_how_far_it_is(job, said):
    """Live: `--watch` has drawn it at one step and at a later one."""
    job.until("two steps on the screen", lambda: len(set(steps_in(said()))) > 1)
    expect(steps_in(said()) == sorted(steps_in(said())), said())
    text = until_said(
        f"status {NAME}", r"^State +Running$", r"^Pods +2 of 2 ready, elastic from 1 to 4$", r"^Round +\d+, 4 ranks$",
        r"^Progress +step \d+ of 4690000 \(\d+ %\), epoch \d+, loss \S+, \S+ samples/s, .+ a step, about .+ left$",
        rf"^0-1 +{NAME}-worker-\d +Running +yes +node\d$", rf"^2-3 +{NAME}-worker-\d +Running +yes +node\d$")
    step, epoch = map(int, re.search(r"step (\d+) of .*, epoch (\d+)", text).groups())
    expect(epoch == step // jobs.STEPS_PER_EPOCH, text)
    expect("Checkpoint" not in text, f"none is saved before it is asked for:\n{text}")
    until_said("status", rf"^{NAME} +Running +2/2 +4 +\d+/4690000 ")


def checkpoint_stores_a_new_one(job, line):
    expect(not manifests_of(job), f"nobody has asked for a checkpoint yet: {manifests_of(job)}")
    said = shell(line)
    expect_in(said, rf"^{NAME} has stored step \d+: s3://\S+$")
    step, uri = re.search(r"step (\d+): (\S+)", said).groups()
    expect(manifests_of(job) == [int(step)], f"the output names step {step}, the bucket has {manifests_of(job)}")
    until_said(f"status {NAME}", rf"^Checkpoint +step {step}, .* ago, {uri}$")


def manifests_of(job):
    return sorted(int(path.parent.name.removeprefix("step-")) for path in job.checkpoint_folder().glob("step-*/manifest.json"))


def scale_changes_the_world(job, line):
    expect_in(shell(line), f"{NAME} is scaled from 2 to 4 pods")
    job.until_ranks(8)
    until_said(f"status {NAME}", r"^Pods +4 of 4 ready", r"^Round +\d+, 8 ranks$", rf"^6-7 +{NAME}-worker-3 +Running")
    expect_in(lockstep(f"scale {NAME} 5", code=1), "maxReplicas 4: 5 pods would be too many")
    expect_in(lockstep(f"scale {NAME} 1"), "from 4 to 1 pod")  # the machine has two processors
    job.until_ranks(2, after=job.newest_ranks()[0])


def logs_are_those_of_the_rank(followed):
    """Of two ranks in one pod, each has its own lines."""
    until("the followed rank enters a round", lambda: "rank entered the round" in followed(), details=followed)
    for rank, text in ((1, followed()), (0, until_said(f"logs {NAME}", '"message":"training"'))):
        head, *lines = text.rpartition("\n")[0].splitlines()  # the last one may be only begun
        expect_in(head, rf"^rank {rank} of round \d+: pod {NAME}-worker-\d$")
        records = [json.loads(line) for line in lines if line.startswith("{")]
        reported = {record["rank"] for record in records if "rank" in record}
        expect(reported == {rank}, f"the log of rank {rank} is that of {reported}:\n{text}")
        places = {int(record["local_rank"]) for record in records if "local_rank" in record}
        expect(places == {rank}, f"the log of rank {rank} tells of the local ranks {places}:\n{text}")
    expect_in(lockstep(f"logs {NAME} --rank 9", code=1), "no pod .* has logged rank 9: its ranks are 0 to 3")


def top_says_that_nothing_is_measured(job):
    job.until("a speed in the status", lambda: job.status().get("progress", {}).get("samplesPerSecond"))
    expect_in(lockstep(f"top {NAME}", code=1), f"^{NAME}: .* samples/s",
              "^kubectl lockstep: this cluster measures no CPU and memory of pods: it has no metrics-server$")


def top_shows_cpu_and_memory(job):
    def shown():
        text = shell(f"kubectl lockstep top {NAME} || true")
        return re.search(rf"^0-1 +{NAME}-worker-0 +(\d+)m +(\d+)Mi +node\d$", text, re.MULTILINE) and text
    text = job.until("numbers of the pod", shown)
    cpu, memory = map(int, re.search(r"(\d+)m +(\d+)Mi", text).groups())
    expect(cpu > 0 and memory > 50, f"so little for two ranks that train:\n{text}")  # a busy machine gives them little


def suspend_and_resume(job):
    asked_for = manifests_of(job)[-1]
    expect_in(lockstep(f"suspend {NAME}"), "is suspended: it saves a checkpoint, then its pods are removed")
    job.until("its pods are gone", lambda: not job.pods())
    text = until_said(f"status {NAME}", r"^State +Suspended \(SuspendRequested", r"^Pods +0 of 1 ready")
    expect(not re.search("^!", text, re.MULTILINE), f"nothing is wrong with it:\n{text}")
    expect_in(lockstep(f"suspend {NAME}"), "already")
    expect_in(lockstep(f"checkpoint {NAME}", code=1), "is suspended: none of its pods runs")
    saved = manifests_of(job)[-1]
    expect(saved > asked_for, f"no checkpoint was saved: the newest is of step {saved}")
    last, _ = job.newest_ranks()
    expect_in(lockstep(f"resume {NAME}"), f"{NAME} is resumed")
    job.until_ranks(2, after=last)
    first = min(r["step"] for r in job.commits() if r["round"] > last)
    expect(first == saved, f"the checkpoint was of step {saved}, and the job goes on with step {first}")
    until_said(f"status {NAME}", r"^State +Running$", r"^Pods +1 of 1 ready")


def documented_commands(job):
    """The other commands that the documents show on a running job."""
    for line in documented.IN_A_CLUSTER:
        if not line.startswith(("cmake", "kubectl lockstep")):
            expect(shell(documented.filled_in(line, JOB=NAME)) or "jsonpath" in line, f"{line} says nothing")
    job.until("a trace of each rank", lambda: len(list(job.checkpoint_folder().glob("profile/*.json"))) == 2)


def who_may_look_may_not_change():
    expect_in(lockstep(f"status {NAME}", role="view"), r"^State +Running$", r"^0-1 +")
    for words in (f"suspend {NAME}", f"scale {NAME} 3", f"checkpoint {NAME}"):
        expect_in(lockstep(words, role="view", code=1), '^kubectl lockstep: not allowed: .*"somebody-with-view" cannot (patch|update)')
    # kubectl's own flags win over the configuration, and are handed on.
    expect_in(lockstep(f"status {NAME} --as nobody", code=1), '^kubectl lockstep: not allowed: .*"nobody" cannot get')


def test_all_verbs_on_a_job_that_trains():
    status, logs, checkpoint, scale = [line for line in documented.IN_A_CLUSTER if line.startswith("kubectl lockstep")]
    with started(endless()) as job, contextlib.ExitStack() as stack:
        watched, watching = stack.enter_context(on_a_screen(status))
        job.until_ranks(4)
        top_says_that_nothing_is_measured(job)
        is_measured = metrics_server.program()
        if is_measured:
            stack.enter_context(metrics_server.running())
        else:
            print(f"SKIPPED top_shows_cpu_and_memory: {metrics_server.BUILD} has compiled no metrics-server", flush=True)
        followed, _ = stack.enter_context(on_a_screen(logs))
        logs_are_those_of_the_rank(followed)
        status_tells_how_far_it_is(job, watched)
        checkpoint_stores_a_new_one(job, checkpoint)
        who_may_look_may_not_change()
        scale_changes_the_world(job, scale)
        documented_commands(job)
        if is_measured:
            top_shows_cpu_and_memory(job)
        suspend_and_resume(job)
        expect(watching.poll() is None, f"status --watch has ended before the job:\n{watched()}")


def test_watches_a_job_to_its_end():
    job = jobs.manifest("short", replicas=2)
    with started(job) as short, on_a_screen("kubectl lockstep status short --watch") as (said, watching):
        short.until_complete()
        expect(watching.wait(LIMIT) == 0, f"exit code {watching.returncode} for a job that is complete:\n{said()}")
        for text in (said(), lockstep("status short")):
            last = text[text.rindex("short in "):]
            expect_in(last, r"^State +Complete", r"^Progress +step 469 of 469 \(100 %\), epoch 1, loss \S+$",
                      r"^Tested +accuracy 0\.\d+, .* after step 469, epoch 1$", r"^Checkpoint +step 469, .* ago, s3://")
        expect_in(lockstep("status"), r"^short +Complete +\d/2 +\d +469/469 ")
        for words in ("suspend short", "resume short", "scale short 1", "checkpoint short"):
            expect_in(lockstep(words, code=1), r"^kubectl lockstep: short has ended \(Complete\)")


def test_validates_a_good_and_a_wrong_file():
    example = (jobs.ROOT / "crds" / "examples" / "fashion-mnist.yaml").read_text()
    (folder() / "good.yaml").write_text(example)
    (folder() / "wrong.yaml").write_text(example.replace("globalBatchSize", "globalBatchsize").replace("name: cnn", "name: cnnn"))
    expect_in(lockstep("validate good.yaml"), "is valid")
    expect_in(lockstep("validate wrong.yaml", code=1), 'did you mean "globalBatchSize"', "spec.training.model.name")
