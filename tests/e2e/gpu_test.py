"""Jobs that ask for GPUs: where their pods go, how many ranks these have, what Fleet shows of them, and what becomes of a pod whose device
turns bad.

The devices are files, which a device plugin of ours (fake_gpus.go in tests/cluster/programs/kubernetes/for_tests) reports to the kubelet as
nvidia.com/gpu.
"""
import contextlib
import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import jobs
import dashboards
from cases import expect, until

GPU = "nvidia.com/gpu"
FALLBACK = "training on the CPU, though the job asks for GPUs"


@functools.cache
def devices(node):
    """A folder whose files are the node's GPUs, unhealthy where they are not empty; the plugin goes with our namespace."""
    subprocess.run([jobs.ROOT / "tests" / "cluster" / "programs" / "build.sh", "--tests"], check=True)  # nothing where it is built
    folder = tempfile.mkdtemp(prefix=f"gpus-{node}-", dir=os.environ["LOCKSTEP_CLUSTER"])
    jobs.atexit.register(shutil.rmtree, folder)
    programs = str(pathlib.Path(shutil.which("kubectl")).parent)  # all of the cluster's
    paths = {"programs": programs, "devices": folder, "plugins": "/var/lib/kubelet/device-plugins"}
    jobs.kubectl("--namespace", jobs.namespace(), "apply", "--filename=-", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"gpus-{node}"},
         "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
                  "containers": [{"name": "plugin", "image": "localhost/busybox:1", "command": [f"{programs}/fake-gpus", folder],
                                  "volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()]}],
                  "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()]}}))
    return pathlib.Path(folder)


def until_allocatable(wanted):
    """What the scheduler may give away: {node: number of GPUs}."""
    def offered():
        return {node: int(jobs.ask(f"/api/v1/nodes/{node}")["status"]["allocatable"].get(GPU, "0")) for node in wanted}
    until(f"the nodes offer {wanted}", lambda: offered() == wanted, details=lambda: f"{offered()}")


def set_gpus(**counts):
    """Gives the nodes healthy GPUs."""
    for node, count in counts.items():
        names = {f"{node}-gpu-{i}" for i in range(count)}
        for path in devices(node).iterdir():
            if path.name not in names:
                path.unlink()
        for name in names:
            devices(node).joinpath(name).write_text("")
    until_allocatable(counts)


def manifest(name, gpus, **options):
    """A job without an end, unless a number of epochs is given."""
    container = {"resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {GPU: str(gpus)}}}
    job = jobs.manifest(name, container=container, **{"epochs": 10_000, **options})
    job["spec"]["nprocPerNode"] = "auto"
    return job


def nodes_of(job):
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in job.pods()}


def until_fleet_shows(**wanted):
    """What the cluster's Prometheus answers to the numbers of the dashboard, of all jobs of our namespace."""
    queries = dict(dashboards.queries(dashboards.load()["fleet.json"]))

    def shown(title):
        return [value for _, value in jobs.prometheus(dashboards.substituted(queries[f"{title} A"], {"namespace": jobs.namespace()}))]
    def now():
        return {"held": shown("GPUs held"), "waiting": shown("GPUs waited for")}
    until(f"Fleet shows {wanted}", lambda: now() == {name: [value] for name, value in wanted.items()}, details=lambda: f"{now()}")


def test_waits_for_gpus_and_has_a_rank_on_each():
    set_gpus(node1=0, node2=2)
    with contextlib.ExitStack() as rest:
        with jobs.running(manifest("first", gpus=1), with_ledger=True) as first:
            first.until_ranks(1)
            expect(nodes_of(first) == {"first-worker-0": "node2"}, f"{nodes_of(first)}")
            second = rest.enter_context(jobs.running(manifest("second", gpus=2, epochs=1), with_ledger=True))

            def short_of_gpus(kind):
                found = second.condition(kind)
                return found and found["reason"] == "Unschedulable" and f"Insufficient {GPU}" in found["message"]
            second.until("the job says what it lacks", lambda: short_of_gpus("Scheduled") and short_of_gpus("Progressing"))
            expect(nodes_of(second) == {"second-worker-0": None}, f"{nodes_of(second)}")
            until_fleet_shows(held=1, waiting=2)
        second.until_complete()
        expect(nodes_of(second) == {"second-worker-0": "node2"}, f"{nodes_of(second)}")
        until_fleet_shows(held=0, waiting=0)
        expect({r["rank"] for r in second.commits()} == {0, 1}, "nprocPerNode: auto is not the limit of GPUs")
        reported = [json.loads(line) for line in second.logs()["second-worker-0"].splitlines() if FALLBACK in line]
        expect(sorted(t["local_rank"] for t in reported) == ["0", "1"] and all(t["requested_gpus"] == 2 and t["reason"] for t in reported),
               f"not each rank reported once that it takes the CPU: {reported}")


def device_of(job, name):
    """The one GPU of a pod, as the kubelet reports it; a rank can train before that."""
    def reported():
        pod = next(pod for pod in job.pods() if pod["metadata"]["name"] == name)
        return [resource for status in pod["status"].get("containerStatuses", []) for resource in status.get("allocatedResourcesStatus", [])]
    resource, = job.until(f"the resources of {name}", reported)
    device, = resource["resources"]
    return device["resourceID"]


def test_moves_a_pod_away_from_an_unhealthy_device():
    set_gpus(node1=2, node2=2)
    with jobs.running(manifest("ill", gpus=1, replicas=2, elastic=(1, 2)), with_ledger=True) as job:
        before, pods, nodes = job.until_ranks(2), job.uids(), nodes_of(job)
        survivor, victim = sorted(pods)
        device, node = device_of(job, victim), nodes[victim]
        given = job.kubectl("exec", victim, "--", "printenv", "NVIDIA_VISIBLE_DEVICES").strip()
        expect(given == device, f"the container was given {given}, not {device}")
        devices(node).joinpath(device).write_text("a fault of the test")
        job.until_ranks(2, after=before)
        expect(job.uids()[survivor] == pods[survivor], "the pod with a healthy device was replaced")
        expect(job.uids()[victim] != pods[victim], "the pod is still the one with the unhealthy device")
        expect(nodes_of(job)[victim] not in (None, node), f"the new pod went to {nodes_of(job)}, away from {nodes}")
        reason = f"unhealthy devices: {device} of {GPU}"
        avoided = job.until("a node that is avoided", lambda: job.status().get("avoidedNodes"))
        expect([(entry["name"], entry["reason"]) for entry in avoided] == [(node, reason)], f"avoided nodes: {avoided}")
        expect(job.status().get("attempt", 0) == 0, f"it was charged to the budget: {job.status()}")
        until("an event tells of it", lambda: f"{victim} on node {node}: {reason}" in job.kubectl(
            "get", "events", f"--field-selector=involvedObject.name={job.name},reason=ReplicaFailed"))
        until_allocatable({node: 1})
