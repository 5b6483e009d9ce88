"""`lockstep.Client`: a function of this file trains in two pods that have PyTorch, and a client in a pod finds its cluster and its namespace."""
import json
import subprocess
import sys

import jobs
import pytest
import torch_python
from cases import LIMIT, expect, until
from programs import python_program

CLIENT_SITE = subprocess.run([jobs.ROOT / ".ci/install", "--print-client-site"], check=True, capture_output=True, text=True).stdout.strip()
sys.path[:0] = [str(jobs.ROOT / "runtime/python"), CLIENT_SITE]
import lockstep  # noqa: E402

STEPS = 30


def train(steps):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.rand(4, 8)).sum().backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} has trained", flush=True)
    # PyTorch over Gloo aborts at times when a process ends with these: with 2.15 two of 28, also without Lockstep. Such a rank is started again.
    del model, optimizer
    dist.barrier()
    dist.destroy_process_group()


def fail():
    raise ValueError("no data")


def with_pytorch():
    """Arguments of submit for the test's image, into which PyTorch is mounted."""
    pod = python_program("client", [], {"torch": torch_python.packages()}, "torch")["spec"]["worker"]["template"]["spec"]
    container = pod["containers"][0]
    fields = {field: container[field] for field in ("imagePullPolicy", "resources", "securityContext", "env", "volumeMounts")}
    return {"image": container["image"], "container": fields}, {"worker": {"template": {"spec": {"volumes": pod["volumes"]}}}}


def expect_of_rank(rank, lines):
    trained = [line.partition("] ")[2] for line in lines if "has trained" in line]
    expect(set(trained) == {f"rank {rank} of 2 has trained"}, f"rank {rank}: {lines}")


def scripts():
    return [name for name in jobs.kubectl("--namespace", jobs.namespace(), "get", "configmaps", "--output=name").split() if "-script-" in name]


def test_a_function_trains_in_the_cluster(capsys):
    options, spec = with_pytorch()
    client = lockstep.Client(jobs.namespace())
    job = client.submit(train, arguments={"steps": STEPS}, replicas=2, spec=spec, **options)
    followed = list(job.logs(rank=1, follow=True))
    expect_of_rank(1, followed)
    job.wait(timeout=LIMIT)
    expect("Complete" in capsys.readouterr().out, "the end is not shown")
    expect(job.metrics()["step"] >= STEPS, f"{job.metrics()}")
    expect_of_rank(0, list(job.logs(rank=0)))
    job.delete()
    until("the script is gone with its job", lambda: not scripts(), details=scripts)


def test_a_failure_is_raised_and_its_error_is_in_the_log():
    options, spec = with_pytorch()
    job = lockstep.Client(jobs.namespace()).submit(fail, spec={**spec, "failurePolicy": {"maxRestarts": 0}}, **options)
    with pytest.raises(lockstep.JobFailed, match="exited with code 1"):
        job.wait(timeout=LIMIT)
    expect(any("ValueError: no data" in line for line in job.logs()), f"{list(job.logs())}")
    job.delete()


def test_a_client_in_a_pod():
    space = jobs.namespace()
    jobs.kubectl("--namespace", space, "create", "rolebinding", "notebook", "--clusterrole=edit", f"--serviceaccount={space}:default")
    code = "import lockstep; client = lockstep.Client(); print(client.jobs(), client._backend._kube.namespace)"
    folders = {"package": jobs.ROOT / "runtime/python", "client": CLIENT_SITE}
    pod = python_program("notebook", ["-c", code], folders, *folders)["spec"]["worker"]["template"]["spec"]
    jobs.kubectl("--namespace", space, "create", "--filename=-", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "notebook"}, "spec": {**pod, "restartPolicy": "Never"}}))

    def ended():
        phase = jobs.get("--namespace", space, "pod", "notebook")["status"]["phase"]
        return phase in ("Succeeded", "Failed")
    until("the pod has ended", ended, poll=0.5)
    said = jobs.kubectl("--namespace", space, "logs", "notebook")
    expect(said == f"[] {space}\n", said)
    jobs.kubectl("--namespace", space, "delete", "pod", "notebook")
