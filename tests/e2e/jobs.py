"""What the end-to-end tests share: kubectl, and a job that is applied, watched and always deleted.

All in a namespace of its own, which goes with the process. Needs a cluster with Lockstep installed (tests/e2e/install-lockstep).
"""
import atexit
import base64
import contextlib
import copy
import functools
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import checkpoints  # noqa: E402
import ledger  # noqa: E402
import slow_mlp  # noqa: E402
from cases import LIMIT, expect, until  # noqa: E402
from kube_api import api  # noqa: E402
from shards import Table  # noqa: E402

IMAGE = "localhost/lockstep-worker:" + (ROOT / "VERSION").read_text().strip()
SYSTEM = ("--namespace", "lockstep-system")
OPERATORS = (*SYSTEM, "pods", "--selector=app.kubernetes.io/name=lockstep")
LEDGER = "/ledger"
SAMPLES, BATCH = 60000, 128  # Fashion-MNIST
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)


def slow_model(milliseconds):
    """Of jobs with a ledger. Its forward passes wait until `Job.quickly`."""
    return slow_mlp.model(LEDGER, milliseconds, library=f"{LEDGER}/{slow_mlp.LIBRARY.name}")


# A step of some 20 milliseconds: what happens to the job in a minute happens while it trains.
SLOW = slow_model(milliseconds=20)
SECRET = "lockstep-s3"
LONG = 10_000  # epochs: it ends by complete_this_epoch, or by its deletion


class Failure(AssertionError):
    """kubectl said no; `text` is what it said."""

    def __init__(self, arguments, text):
        super().__init__(f"kubectl {' '.join(arguments)}: {text}")
        self.text = text


def kubectl(*arguments, stdin=None, limit=LIMIT):
    done = subprocess.run(["kubectl", *arguments], input=stdin, text=True, capture_output=True, timeout=limit, check=False)
    if done.returncode != 0:
        raise Failure(arguments, done.stderr.strip() or done.stdout.strip())
    return done.stdout


def get(*arguments):
    return json.loads(kubectl("get", *arguments, "--output=json"))


def addresses(*selection):
    """pod name -> its address. A container can run before the kubelet has reported the address of its pod."""
    def reported():
        found = {pod["metadata"]["name"]: pod["status"].get("podIP") for pod in get(*selection, "pods")["items"]}
        return all(found.values()) and found
    return until("an address of each pod", reported)


def ask(path):
    def answered():  # a machine that pauses lets a question run into its time-out
        with contextlib.suppress(OSError, http.client.HTTPException):
            code, answer = api().request("GET", path)
            return (code, answer) if code < 500 and code != 429 else None
        return None
    code, answer = until(f"an answer to {path}", answered, poll=0.5)
    if code != 200:
        raise Failure(["get", path], answer.get("message", str(answer)))
    return answer


@functools.cache
def namespace():
    """A namespace for this process, with the bucket's Secret in it."""
    name = f"e2e-{os.getpid()}"
    kubectl("create", "namespace", name)
    atexit.register(kubectl, "delete", "namespace", name, "--timeout=90s", limit=100)
    data = {key: base64.b64encode(os.environ[key].encode()).decode()
            for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL")}
    kubectl("--namespace", name, "apply", "--filename=-", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}))
    return name


def end_in_order(*_):
    raise KeyboardInterrupt  # runs what atexit and the open contexts have to do; pytest takes SystemExit for the failure of one case


signal.signal(signal.SIGTERM, end_in_order)


def manifest(name, replicas=1, elastic=None, resume="Never", container=None, **training):
    """A small job on Fashion-MNIST: an MLP, minutes of training for nobody who does not ask for epochs."""
    spec = {
        "nprocPerNode": 1,
        "worker": {"replicas": replicas, "template": {"spec": {"containers": [
            {"name": "trainer", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
             "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}, **(container or {})}]}}},
        "training": {
            "model": {"name": "mlp", "mlp": {"hiddenSizes": [64]}},
            "data": {"format": "idx", "path": "/usr/share/datasets/fashion-mnist"},
            "optimizer": {"name": "sgd", "learningRate": 0.05, "momentum": 0.9},
            "globalBatchSize": BATCH, "epochs": 1, "seed": 3, "evaluation": {"everyEpochs": 1}, **training},
        "checkpoint": {"uri": f"s3://lockstep/e2e-{os.getpid()}/{name}", "secretRef": {"name": SECRET},
                       "intervalSteps": 100, "resume": resume},
    }
    if elastic:
        spec["elasticPolicy"] = {"minReplicas": elastic[0], "maxReplicas": elastic[1]}
    return {"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "metadata": {"name": name}, "spec": spec}


def all_at_once(job):
    """A copy of an elastic job whose first round waits for all workers. Without it a pod that starts seconds after the others joins in a round
    of its own, and on a busy machine one does."""
    return changed(job, ["spec", "rendezvous"], {**job["spec"].get("rendezvous", {}), "lastCallSeconds": LIMIT})


def changed(job, path, value):
    """A copy of the job with one field set; None takes it away."""
    job = copy.deepcopy(job)
    parent = job
    for key in path[:-1]:
        parent = parent[key]
    if value is None:
        parent.pop(path[-1])
    else:
        parent[path[-1]] = value
    return job


@contextlib.contextmanager
def no_operator():
    kubectl(*SYSTEM, "scale", "deployment", "--all", "--replicas=0")
    try:
        until("the operator is gone", lambda: not get(*OPERATORS)["items"])
        yield
    finally:
        kubectl(*SYSTEM, "scale", "deployment", "--all", "--replicas=2")


def leader_of(job):
    """The operator's pod that leads the job and hosts its rendezvous."""
    uid = get("--namespace", job.space, "distributedtrainingjob", job.name)["metadata"]["uid"]
    lease = (*SYSTEM, "leases.coordination.k8s.io", "lockstep-leader")
    identity = until("a leader of the job", lambda: Table(get(*lease)).leader_of(uid))
    return get(*SYSTEM, "pods", identity.rpartition("_")[0])


class Job:
    """A job in the cluster, and the sample ledger of its ranks."""

    def __init__(self, job):
        self.space = namespace()
        self.job = copy.deepcopy(job)
        self.name = job["metadata"]["name"]
        self.ledger = None
        self._seen = None  # as the API server had it at the beginning of a look of `until`

    def keep_ledger(self):
        """Gives the pods a folder of this machine: the nodes of the test cluster see its files."""
        self.ledger = tempfile.mkdtemp(prefix="lockstep-ledger-", dir=os.environ["LOCKSTEP_CLUSTER"])
        os.chmod(self.ledger, 0o777)
        shutil.copy(slow_mlp.LIBRARY, self.ledger)
        slow_mlp.slowly(self.ledger)
        pod = self.job["spec"]["worker"]["template"]["spec"]
        trainer = pod["containers"][0]
        pod.setdefault("volumes", []).append({"name": "ledger", "hostPath": {"path": self.ledger}})
        trainer.setdefault("volumeMounts", []).append({"name": "ledger", "mountPath": LEDGER})
        trainer.setdefault("env", []).append({"name": "LOCKSTEP_SAMPLE_LEDGER", "value": LEDGER})

    def quickly(self):
        """The steps of a SLOW job wait no longer."""
        slow_mlp.quickly(self.ledger)

    def kubectl(self, *arguments, **options):
        return kubectl("--namespace", self.space, *arguments, **options)

    def apply(self):
        return self.kubectl("apply", "--filename=-", stdin=json.dumps(self.job))

    def delete(self):
        self.kubectl("delete", "dtj", self.name, "--ignore-not-found", f"--timeout={LIMIT}s", limit=LIMIT + 60)
        expect(not self.pods(), f"pods are left of {self.name}")
        if self.ledger:
            shutil.rmtree(self.ledger)

    def patch(self, spec):
        self.kubectl("patch", "dtj", self.name, "--type=merge", "--patch", json.dumps({"spec": spec}))

    def samples(self):
        return self.job["spec"]["training"]["data"].get("synthetic", {}).get("samples", SAMPLES)

    def get(self):
        return self._seen or ask(f"/apis/lockstep.dev/v1alpha1/namespaces/{self.space}/distributedtrainingjobs/{self.name}")

    def status(self):
        return self.get().get("status", {})

    def pods(self):
        return ask(f"/api/v1/namespaces/{self.space}/pods?labelSelector=lockstep.dev/job={self.name}")["items"]

    def condition(self, kind):
        return next((c for c in self.status().get("conditions", []) if c["type"] == kind), None)

    def until(self, what, condition):
        """Waits for a condition; not for one that can no longer come, because the job has failed. It sees one state of the job in each look."""
        def reached():
            self._seen = self.get()
            try:
                over = self.condition("Failed")  # what it waits for may be this very failure
                value = condition()
            finally:
                self._seen = None
            if not value and over:
                raise AssertionError(f"the job failed before: {what}\n{self.describe()}")
            return value
        return until(what, reached, details=self.describe)

    def until_condition(self, kind):
        def reached():
            found = self.condition(kind)
            return found if found and found["status"] == "True" else None
        return self.until(f"{self.name} is {kind}", reached)

    def until_complete(self):
        self.until_condition("Complete")
        return self.status()

    def complete_this_epoch(self):
        """Ends a job of LONG epochs, after what the test waited for, and completes it with the epoch that it is in. A job of a fixed length
        may be complete before that on a machine where the test gets its turn slowly."""
        self.patch({"suspend": True})
        self.until("its pods are gone", lambda: not self.pods())
        self.quickly()
        training = self.job["spec"]["training"]
        training["epochs"] = (ledger.newest_commit(self.ledger) + 1) // -(-self.samples() // training["globalBatchSize"]) + 1
        self.patch({"suspend": False, "training": {"epochs": training["epochs"]}})
        return self.until_complete()

    def until_step(self, step):
        """A step that a rank has committed, by the ledger."""
        self.until(f"step {step}", lambda: ledger.newest_commit(self.ledger) >= step)

    def commits(self):
        return [r for r in ledger.read(self.ledger) if r["event"] == "commit"]

    def newest_ranks(self):
        """(round, the ranks that committed a step in it) of the newest round."""
        commits = self.commits()
        newest = max((r["round"] for r in commits), default=0)
        return newest, {r["rank"] for r in commits if r["round"] == newest}

    def until_ranks(self, count, after=0):
        """Waits for a round later than `after` in which that many ranks make steps; returns its number."""
        def all_in():
            newest, ranks = self.newest_ranks()
            return newest > after and ranks == set(range(count)) and newest
        return self.until(f"{count} ranks train", all_in)

    def uids(self):
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}

    def addresses(self):
        return addresses("--namespace", self.space, f"--selector=lockstep.dev/job={self.name}")

    def checkpoint_folder(self):
        """The test cluster's S3 server keeps its objects in a folder."""
        return pathlib.Path(os.environ["LOCKSTEP_CLUSTER"], "s3", self.job["spec"]["checkpoint"]["uri"].removeprefix("s3://"))

    def final_bits(self):
        """(step, digest of the weights) of the newest checkpoint."""
        step, checkpoint = checkpoints.newest(self.checkpoint_folder())
        return step, checkpoints.digest_of_tensors(checkpoint)

    def describe(self):
        parts = []
        for arguments in (("describe", "dtj", self.name), ("get", "pods", "--output=wide"),
                          ("logs", f"--selector=lockstep.dev/job={self.name}", "--tail=12", "--prefix")):
            with contextlib.suppress(Failure):
                parts.append(self.kubectl(*arguments)[-2000:])
        return "\n".join(parts)

    def logs(self):
        return {pod["metadata"]["name"]: self.kubectl("logs", pod["metadata"]["name"]) for pod in self.pods()}

    def expect_not_shown(self, *secrets):
        """None of them, nor any token, stands where people or other programs read: logs, objects, events, metrics."""
        reported = {f"log of {pod}": text for pod, text in self.logs().items()}
        reported["log of the operator"] = kubectl("--namespace", "lockstep-system", "logs", "--selector=app.kubernetes.io/name=lockstep",
                                              "--tail=-1")
        reported["objects"] = self.kubectl("get", "dtj,pods,services,configmaps,events", "--output=yaml")
        addresses = {pod["metadata"]["name"]: pod["status"].get("podIP") for pod in self.pods() if pod["status"]["phase"] == "Running"}
        for pod, address in addresses.items():
            reported[f"metrics of {pod}"] = exposition(address, 9400)
        encoded = [base64.b64encode(secret.encode()).decode() for secret in secrets]
        for place, text in reported.items():
            expect(not [s for s in (*secrets, *encoded) if s in text], f"a secret stands in {place}")
            expect(not re.search(r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.", text), f"a token stands in {place}")

    def ranks(self):
        """pod name -> process ids of its ranks, inside the pod."""
        found = processes("lockstep-rank")
        return {name: [inner for _, inner in found.get(name, [])] for name in self.uids()}

    def kill(self, victims, signal_name="KILL"):
        """A signal to {pod: [pid]}, in all pods at the same time."""
        running = [subprocess.Popen(["kubectl", "--namespace", self.space, "exec", pod, "--", "sh", "-c",
                                     f"kill -{signal_name} " + " ".join(map(str, pids))]) for pod, pids in victims.items()]
        for process in running:
            expect(process.wait(LIMIT) == 0, "kubectl exec … kill failed")

    def supervisor(self, pod):
        """Its process id, as this machine sees it."""
        return process_of(pod, "lockstep")

    def rank_process(self, pod):
        """The same of its rank."""
        return process_of(pod, "lockstep-rank")

    @contextlib.contextmanager
    def cut_off(self, pod, *addresses):
        """Lets no packet pass between a pod and the addresses, inside the pod's own network namespace."""
        supervisor = pathlib.Path("/proc", str(self.supervisor(pod)))
        def rules(action):
            for chain, side in (("INPUT", "--source"), ("OUTPUT", "--destination")):
                subprocess.run(["nsenter", f"--net={supervisor}/ns/net", "iptables", "--wait", action, chain, side,
                                ",".join(addresses), "--jump", "DROP"], check=True, timeout=LIMIT)
        rules("--append")
        try:
            yield
        finally:
            if supervisor.exists():  # else the namespace has gone with it
                rules("--delete")

    def expect_exactly_once(self):
        training = self.job["spec"]["training"]
        problems = ledger.check_exactly_once(self.ledger, self.samples(), training["globalBatchSize"], training["epochs"])
        expect(not problems, "; ".join(problems))

    def expect_true_goodput(self, precision=0):
        """All seconds add up to the time since the first admission, and the productive ones to those of the steps in the sample ledger.
        `precision`: seconds by which the end of the training is known."""
        def seconds(text):
            return time.mktime(time.strptime(text.split(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S"))

        status = self.status()
        goodput = status["goodput"]
        booked = goodput["productiveSeconds"] + sum(goodput["lostSeconds"].values())
        wall = seconds(status["completionTime"]) - seconds(goodput["since"])
        trained = ledger.productive_seconds(self.ledger)
        print(f"     goodput: {goodput}, wall {wall}, by the ledger {trained:.1f}", flush=True)
        expect(abs(booked - wall) <= 0.01 * wall + 1, f"{booked} s are booked of {wall} s")  # the times in the status are whole seconds
        expect(abs(goodput["productiveSeconds"] - trained) <= 0.02 * wall + precision,
               f"{goodput['productiveSeconds']} s are booked as productive, the ledger has {trained:.1f} s of {wall} s")

    def pause_after(self, moment):
        """Seconds from a wall time to the next step that a rank committed."""
        times = [r["time"] for r in self.commits() if r["time"] > moment]
        return min(times) - moment

    def full_after(self, moment, count):
        """Seconds from a wall time until that many ranks have made a step of a round that began later."""
        first = {}  # (round, rank) -> time of its first step
        for r in self.commits():
            key = (r["round"], r["rank"])
            first[key] = min(first.get(key, r["time"]), r["time"])
        rounds = [n for n in {key[0] for key in first} if len([k for k in first if k[0] == n]) == count
                  and min(t for k, t in first.items() if k[0] == n) > moment]
        return min(max(t for k, t in first.items() if k[0] == n) for n in rounds) - moment


def processes(program, variable="LOCKSTEP_POD_NAME"):
    """pod name -> [(process id as this machine sees it, the same inside the pod)] of all that run the program in a pod, by the
    environment variable that names the pod."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # most are no processes, some end meanwhile
            if (entry / "comm").read_text().strip() != program:
                continue
            pod = re.search(rb"(?:^|\0)%s=([^\0]+)" % variable.encode(), (entry / "environ").read_bytes())
            inner = re.search(r"^NSpid:.*\s(\d+)$", (entry / "status").read_text(), re.MULTILINE)
            if pod:
                found.setdefault(pod[1].decode(), []).append((int(entry.name), int(inner[1])))
    return found


def process_of(pod, program):
    found = processes(program).get(pod)
    expect(found, f"no process {program} runs for pod {pod}")
    return found[0][0]


@contextlib.contextmanager
def running(job, with_ledger=False):
    """Applies a job and deletes it at the end, whatever happens."""
    started = Job(job)
    if with_ledger:
        started.keep_ledger()
    try:
        started.apply()
        yield started
    finally:
        started.delete()


def exposition(address, port):
    """What a pod serves at /metrics."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{address}:{port}/metrics", timeout=LIMIT) as page:
        return page.read().decode()


def prometheus(query):
    """The series of an instant query: [(labels, value)]."""
    url = os.environ["LOCKSTEP_PROMETHEUS_URL"] + "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=LIMIT) as answer:
        return [(r["metric"], float(r["value"][1])) for r in json.load(answer)["data"]["result"]]
