"""What a notebook would do with lockstep.Client.local(). notebook.py CASE: its last line is what it found, in JSON."""
import json
import sys
import threading

import torch

import lockstep

RATE = 0.1


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, inputs):
        return self.layer(inputs)


def train(steps, rate=RATE):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
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


def wait_for_file(path):
    import os
    import time

    print("started", flush=True)
    while not os.path.exists(path):
        time.sleep(0.1)


def trains(client):
    job = client.submit(train, arguments={"steps": 20}, nproc_per_node=2, name="trains")
    followed = list(job.logs(rank=1, follow=True))
    job.wait()
    return {"followed": followed, "read": list(job.logs(rank=0)), "status": job.status(), "metrics": job.metrics()}


def fails(client):
    job = client.submit(fail, spec={"failurePolicy": {"maxRestarts": 0}})
    try:
        job.wait()
    except lockstep.JobFailed as error:
        return {"error": str(error), "read": list(job.logs(rank=0))}
    return {"error": "", "read": []}


def suspends(client):
    job = client.submit(wait_for_file, arguments={"path": "go"}, name="again")
    next(line for line in job.logs(follow=True) if "started" in line)
    job.suspend()
    for line in job.logs(follow=True):  # until its processes have ended
        pass
    states = [until_not(job, "Running")]
    open("go", "w").close()
    job.resume()
    job.wait()
    states.append(job.status()["state"])
    job.delete()
    return {"states": states}


def until_not(job, state):
    ended = threading.Event()
    while job.status()["state"] == state:
        ended.wait(0.05)
    return job.status()["state"]


def leaves(client):
    job = client.submit(wait_for_file, arguments={"path": "go"}, name="leaves")
    line = next(line for line in job.logs(follow=True) if "rank placed" in line)
    del line
    return {"pid": client._backend._runs["leaves"]._process.pid}


def closes():
    rate = 0.1

    def inner():
        print(rate)
    return inner


LOCK = threading.Lock()


def uses_a_lock():
    with LOCK:
        print("locked")


def misspells():
    prinnt("x")  # noqa: F821


class Trainer:
    def train(self):
        print(self)


async def sleeps():
    pass


def mistakes(client):
    cases = {
        "lambda": (lambda: client.submit(lambda: None), "lambda"),
        "closure": (lambda: client.submit(closes()), "inner uses rate of the function in which it is defined"),
        "method": (lambda: client.submit(Trainer().train), "is a method"),
        "class": (lambda: client.submit(Trainer), "`def`"),
        "coroutine": (lambda: client.submit(sleeps), "asynchronous"),
        "lock": (lambda: client.submit(uses_a_lock), "uses_a_lock uses LOCK, a lock"),
        "undefined": (lambda: client.submit(misspells), "misspells uses prinnt"),
        "missing argument": (lambda: client.submit(train), "steps"),
        "argument": (lambda: client.submit(train, arguments={"steps": Trainer()}), "argument steps of train is a Trainer"),
        "list": (lambda: client.submit(train, arguments=[1]), "must be a dict"),
        "large": (lambda: client.submit(wait_for_file, arguments={"path": "x" * 2_000_000}), "1048"),
        "no file": (lambda: client.submit("absent.py"), "absent.py"),
        "no field": (lambda: client.submit(fail, spec={"nprocPerNod": 2}), "nprocPerNod"),
        "no job": (lambda: client.job("absent"), "absent"),
    }
    return {what: {"wanted": wanted, "said": said(call)} for what, (call, wanted) in cases.items()}


def absent(_):
    return {"local": said(lockstep.Client.local), "cluster": said(lockstep.Client)}


def said(call):
    try:
        call()
    except lockstep.LockstepError as error:
        return str(error)
    return "no error"


if __name__ == "__main__":
    case = globals()[sys.argv[1]]
    print(json.dumps(case(None if case is absent else lockstep.Client.local())))
