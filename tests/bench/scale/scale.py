#!/usr/bin/env python3
"""How the operator bears many pods, on a real control plane with simulated nodes (KWOK), beside the least that could create them.

scale.py [BUILD_DIR] [--only NAME…] [--kwok N]    as root: starts a control plane with N nodes (default 100), takes it down

Each line of the result: time from the first POST until the last pod exists, pods/s, writes of the operator for each pod, its memory,
and the processor time of everybody who had a hand in it. The bare client posts the very pods that the operator makes, over 8
connections unless the line says otherwise; scheduler, controllers and KWOK do with its pods what they do with ours.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import bare_client  # noqa: E402
from cases import until  # noqa: E402
from kube_api import MERGE, Api  # noqa: E402
from operators import JOBS, ROOT, Operator, create, job, make_namespace, pods_of  # noqa: E402

STEADY_SECONDS = 60
SOAK_SECONDS = 300
FEW = 8
TURNS = 15
TOLERATIONS = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]
KILLED = 30
LIMIT = 600
TICK = os.sysconf("SC_CLK_TCK")
LARGE_TURNS = 3
PROGRAMS = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kwok")


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_mb(pid, line="VmRSS"):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(s for s in text.splitlines() if s.startswith(line + ":")).split()[1]) / 1024


def pid_of(folder, program):
    """Of the cluster's own program."""
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(program.encode()) and folder.encode() in b" ".join(words):
            return int(entry.parent.name)
    raise SystemExit(f"{program} is not there")


class Bench:
    def __init__(self, api, operator, folder, address):
        self.api, self.operator, self.pki, self.address = api, operator, f"{folder}/pki", address
        self.pids = {"operator": operator.process.pid, **{program: pid_of(folder, program) for program in PROGRAMS}}

    def count(self, namespace):
        """Cheap: the list's own count of what it leaves out."""
        answer = self.api.request("GET", f"/api/v1/namespaces/{namespace}/pods?limit=1")[1]
        return len(answer["items"]) + answer["metadata"].get("remainingItemCount", 0)

    def measure(self, name, namespace, pods, act):
        writes, seconds = self.operator.writes(), self.processor_seconds()
        self.before = seconds
        begin = time.monotonic()
        act()
        until(f"{pods} pods", lambda: self.count(namespace) >= pods, LIMIT, 0.1)
        taken = time.monotonic() - begin
        writes = self.operator.writes() - writes
        print(f"{name}: {taken:.2f} s, {pods / taken:.0f} pods/s, {writes / pods:.2f} writes a pod; operator "
              f"{resident_mb(self.pids['operator']):.0f} MB; {self.since_then()}", flush=True)
        return taken

    def since_then(self):
        seconds = {name: after - self.before[name] for name, after in self.processor_seconds().items()}
        return f"CPU s: {', '.join(f'{name} {spent:.1f}' for name, spent in seconds.items())}, together {sum(seconds.values()):.1f}"

    def processor_seconds(self):
        """Of everybody; the bare client's once it has ended."""
        client = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {**{name: processor_seconds(pid) for name, pid in self.pids.items()}, "client": client.ru_utime + client.ru_stime}

    def measure_bare(self, pattern, pods, connections=8):
        """Posts so many pods like `pattern`, and takes them away once they run, if anybody lets them."""
        namespace = make_namespace(self.api, "bare")
        bodies = [stripped(pattern, i) for i in range(pods)]
        path = f"/api/v1/namespaces/{namespace}/pods"
        taken = self.measure(f"bare client, {connections} connections, {pods} pods", namespace, pods,
                             lambda: bare_client.post(self.address, self.pki, path, bodies, connections))
        if pattern["spec"]["schedulerName"] != "nobody":
            self.running(namespace, pods)
        self.clear(namespace)
        return taken

    def seconds_to_pods(self, path, document, label):
        name = document["metadata"]["name"]
        seen = set()

        def all_there(event):
            if event["type"] == "ADDED":
                seen.add(event["object"]["metadata"]["name"])
            return len(seen) == FEW
        namespace = path.split("/namespaces/")[1].split("/")[0]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            last = pool.submit(self.api.watch, f"/api/v1/namespaces/{namespace}/pods?watch=true&labelSelector={label}%3D{name}", all_there)
            time.sleep(0.3)  # nothing hangs on it: a watch that begins late sees the pods all the same
            begin = time.monotonic()
            status, answer = self.api.request("POST", path, document)
            assert status == 201, answer
            return last.result(60) - begin

    def create_jobs(self, namespace, count, replicas):
        names = [f"job-{i}" for i in range(count)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in pool.map(lambda name: create(self.api, namespace, on_simulated_nodes(job(name, replicas))), names):
                pass

    def running(self, namespace, pods):
        begin = time.monotonic()
        path = f"/api/v1/namespaces/{namespace}/pods?fieldSelector=status.phase%3DRunning&limit=20000"

        def all_run():
            return self.count_fast(path) >= pods
        until("all run", all_run, LIMIT, 0.5)
        print(f"  … all running {time.monotonic() - begin:.1f} s later; in all {self.since_then()}", flush=True)

    def count_fast(self, path):
        table = self.api.request("GET", path + "&resourceVersion=0", accept="application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")[1]
        return len(table["items"])

    def clear(self, namespace):
        jobs, pods = JOBS.format(namespace), f"/api/v1/namespaces/{namespace}/pods"
        self.delete_all(f"{jobs}?propagationPolicy=Background", f"{jobs}?limit=1")
        self.delete_all(f"{pods}?gracePeriodSeconds=0", f"{pods}?limit=1")

    def delete_all(self, collection, some):
        def is_empty():
            try:
                self.api.request("DELETE", collection)
            except TimeoutError:  # thousands take longer than a request may; the next one goes on
                return False
            return not self.api.request("GET", some)[1]["items"]
        until(f"nothing is left of {collection}", is_empty, LIMIT, 0.5)


def on_simulated_nodes(document):
    pod = document["spec"]["worker"]["template"]["spec"]
    del pod["schedulerName"]
    pod["tolerations"] = TOLERATIONS
    return document


def stripped(pod, index):
    """The pod as the operator posted it, more or less to the byte."""
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations") if key in pod["metadata"]}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": f"bare-{index}"}, "spec": spec}).encode()


def pattern_of(bench):
    """A pod of ours."""
    namespace = make_namespace(bench.api, "pattern")
    create(bench.api, namespace, on_simulated_nodes(job("pattern", 1)))
    pattern = until("a pattern", lambda: pods_of(bench.api, namespace, "pattern"), 30)[0]
    bench.clear(namespace)
    return pattern


def few(bench):
    """From the creation until the watch has reported all pods, ours and Kubernetes' own Job in turns."""
    namespace = make_namespace(bench.api, "few")
    ours, theirs = [], []
    for turn in range(TURNS + 1):
        ours.append(bench.seconds_to_pods(JOBS.format(namespace), on_simulated_nodes(job(f"ours-{turn}", FEW)), "lockstep.dev/job"))
        theirs.append(bench.seconds_to_pods(f"/apis/batch/v1/namespaces/{namespace}/jobs", kubernetes_job(f"theirs-{turn}"),
                                            "batch.kubernetes.io/job-name"))
    for name, times in (("1 job", ours[1:]), ("1 Kubernetes Job", theirs[1:])):  # without the first, which opens connections
        print(f"{name} x {FEW} pods: {1000 * statistics.median(times):.0f} ms ({1000 * min(times):.0f} to {1000 * max(times):.0f}), "
              f"{TURNS} turns", flush=True)
    bench.clear(namespace)


def kubernetes_job(name):
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "localhost/none:1"}], "tolerations": TOLERATIONS}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"parallelism": FEW, "completions": FEW, "completionMode": "Indexed", "template": {"spec": pod}}}


def many_pods(bench, jobs=100, replicas=100):
    pods = jobs * replicas
    bare = bench.measure_bare(pattern_of(bench), pods)
    ours = make_namespace(bench.api, "ours")
    taken = bench.measure(f"{jobs} jobs x {replicas} pods", ours, pods, lambda: bench.create_jobs(ours, jobs, replicas))
    bench.running(ours, pods)
    pid = bench.operator.process.pid
    print(f"  … {taken / bare:.2f} times the bare client; operator {resident_mb(pid):.0f} MB now, {resident_mb(pid, 'VmHWM'):.0f} MB at most", flush=True)
    steady(bench)
    bench.clear(ours)


def steady(bench):
    until("rest", lambda: at_rest(bench), 60, 0)
    writes, seconds = bench.operator.writes(), processor_seconds(bench.operator.process.pid)
    time.sleep(STEADY_SECONDS)  # what is measured
    print(f"  … nothing happens for {STEADY_SECONDS} s: {bench.operator.writes() - writes:.0f} writes, "
          f"{processor_seconds(bench.operator.process.pid) - seconds:.2f} CPU s", flush=True)


def at_rest(bench):
    before = bench.operator.writes()
    time.sleep(2)
    return bench.operator.writes() == before


def many_jobs(bench):
    many_pods(bench, jobs=1000, replicas=10)


def one_large(bench, pods=1000):
    """Ours and the bare client in turns, so that what else the machine does falls on both."""
    pattern = pattern_of(bench)
    ours, theirs = [], []
    for _ in range(LARGE_TURNS):
        theirs.append(bench.measure_bare(pattern, pods))
        namespace = make_namespace(bench.api, "large")
        ours.append(bench.measure(f"1 job x {pods} pods", namespace, pods, lambda: bench.create_jobs(namespace, 1, pods)))  # noqa: B023
        bench.running(namespace, pods)
        if len(ours) == LARGE_TURNS:
            until("rest", lambda: at_rest(bench), 60, 0)
            replaced(bench, namespace, pods)
        bench.clear(namespace)
    print_medians(ours, theirs)


def print_medians(ours, theirs):
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print(f"  … medians {ours:.2f} s and {theirs:.2f} s: {ours / theirs:.2f} times the bare client", flush=True)


def unscheduled(bench, pods=1000):
    """The same without what follows from a pod: nobody binds these, nobody lets them run."""
    pattern = pattern_of(bench)
    pattern["spec"]["schedulerName"] = "nobody"
    ours, theirs = [], []
    for _ in range(LARGE_TURNS):
        theirs.append(bench.measure_bare(pattern, pods))
        namespace = make_namespace(bench.api, "unscheduled")
        ours.append(bench.measure(f"1 job x {pods} pods, nobody schedules them", namespace, pods,
                                  lambda: create(bench.api, namespace, job("large", pods))))  # noqa: B023
        bench.clear(namespace)
    print_medians(ours, theirs)


def bare(bench, pods=1000):
    """What the machine gives at most."""
    pattern = pattern_of(bench)
    for _ in range(LARGE_TURNS):
        for connections in (8, 16, 32):
            bench.measure_bare(pattern, pods, connections)


def replaced(bench, namespace, pods):
    """30 pods die at once: until 30 others are there."""
    everything = bench.api.request("GET", f"/api/v1/namespaces/{namespace}/pods?limit={2 * pods}")[1]
    victims = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in everything["items"][: KILLED * 7 : 7]}
    version = everything["metadata"]["resourceVersion"]
    back = set()

    def all_back(event):
        metadata = event["object"]["metadata"]
        if event["type"] == "ADDED" and victims.get(metadata["name"], metadata["uid"]) != metadata["uid"]:
            back.add(metadata["name"])
        return len(back) == KILLED
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        watch = pool.submit(bench.api.watch, f"/api/v1/namespaces/{namespace}/pods?watch=true&resourceVersion={version}", all_back)
        begin = time.monotonic()
        for name in victims:
            pool.submit(bench.api.request, "DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")
        print(f"{KILLED} of {pods} pods deleted → {KILLED} others: {watch.result(60) - begin:.2f} s", flush=True)


def soak(bench, least=20, most=60):
    """A job grows and shrinks; what it costs in memory in the end."""
    namespace = make_namespace(bench.api, "soak")
    create(bench.api, namespace, on_simulated_nodes(job("tide", most)))
    memory, cycles, end = [], 0, time.monotonic() + SOAK_SECONDS
    while time.monotonic() < end:
        for replicas in (most, least):
            bench.api.request("PATCH", JOBS.format(namespace) + "/tide", {"spec": {"worker": {"replicas": replicas}}},
                              MERGE)
            until(f"{replicas} pods", lambda: bench.count(namespace) == replicas, LIMIT, 0.05)  # noqa: B023
        cycles += 1
        memory.append(resident_mb(bench.operator.process.pid))
    print(f"{cycles} cycles of {least} to {most} pods in {SOAK_SECONDS} s: operator {memory[len(memory) // 10]:.1f} MB after a tenth, "
          f"{memory[-1]:.1f} MB in the end", flush=True)
    bench.clear(namespace)


BENCHES = {"few": few, "bare": bare, "one_large": one_large, "unscheduled": unscheduled, "many_jobs": many_jobs, "many_pods": many_pods,
           "soak": soak}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", nargs="?", default=str(ROOT / "build/release"))
    parser.add_argument("--only", nargs="*", choices=list(BENCHES), default=list(BENCHES))
    parser.add_argument("--kwok", type=int, default=100)
    options = parser.parse_args()
    cluster = ROOT / "tests/cluster/cluster"
    folder = subprocess.run([cluster, "up", "--kwok", str(options.kwok), "--owner", str(os.getpid())], check=True, text=True,
                            stdout=subprocess.PIPE).stdout.strip()
    try:
        with_cluster(options, cluster, folder)
    finally:
        subprocess.run([cluster, "down", "--dir", folder], check=True)


def with_cluster(options, cluster, folder):
    environment = subprocess.run([cluster, "env", "--dir", folder], check=True, capture_output=True, text=True).stdout
    shell = subprocess.run(["bash", "-c", f"{environment}\necho $PATH; echo $KUBECONFIG"], check=True, capture_output=True, text=True)
    os.environ["PATH"], os.environ["KUBECONFIG"] = shell.stdout.split()
    subprocess.run(["kubectl", "apply", "--server-side", f"--filename={ROOT}/crds/distributedtrainingjobs.yaml"], check=True,
                   stdout=subprocess.DEVNULL)
    established = ["kubectl", "wait", "--for=condition=Established", "crd/distributedtrainingjobs.lockstep.dev", "--timeout=30s"]
    # It fails at once where there is no status yet.
    until("the CRD is established", lambda: subprocess.run(established, capture_output=True).returncode == 0, 30, 0.1)
    server = subprocess.run(["kubectl", "config", "view", "--output=jsonpath={.clusters[0].cluster.server}"], check=True,
                            capture_output=True, text=True).stdout
    host, port = server.removeprefix("https://").split(":")
    with tempfile.TemporaryDirectory() as sockets, Operator(f"{options.build}/operator/lockstep-operator", kubeconfig=os.environ["KUBECONFIG"]) as operator:
        api = Api(sockets)
        try:
            print(f"load of the machine before: {os.getloadavg()[0]:.1f}", flush=True)
            bench = Bench(api, operator, folder, (host, int(port)))
            create_and_wait(bench)
            for name in options.only:
                BENCHES[name](bench)
        finally:
            api.close()


def create_and_wait(bench):
    """The operator is up."""
    namespace = make_namespace(bench.api, "first")
    create(bench.api, namespace, on_simulated_nodes(job("first", 1)))
    until("a first pod", lambda: bench.count(namespace) == 1)
    bench.clear(namespace)


if __name__ == "__main__":
    main()
