"""A script as the package's users write it. train.py FOLDER EPOCHS [saves] [windows] [compiles] [forgets] [centres]

While FOLDER/slowly exists each step takes longer, so a test has time to do something; while FOLDER/saves exists it saves now and then. The rank that finds FOLDER/holds-RANK holds the lock of the
interpreter for as many seconds as that says. While FOLDER/computes exists, the forward pass takes longer, and ten times as long on the rank that it names. FOLDER/joins-PID: a process is about to
join. Each rank writes what it came to: FOLDER/final-RANK.json. With `windows`, ranks average after some steps, and each process writes FOLDER/averages-PID:
lines of round, step, and a digest of the weights. With `compiles` it writes a line into FOLDER/compiled-PID for each graph of the model that PyTorch compiles: for any number of
rows, or for none or one of them, which PyTorch compiles for themselves and which the last step of an epoch has. With `forgets` the scheduler is not passed to join. With `centres` the model has
a buffer that each forward pass changes, as BatchNorm does.
"""
import ctypes
import hashlib
import json
import os
import pathlib
import sys
import time

import torch

import lockstep
from pauses import pause

SAVE_EVERY = 5
AVERAGE_EVERY = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # tests/gpu runs it, too
SAMPLES, BATCH = 2017, 32  # in the last step of an epoch there is one sample, so most ranks have none
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)


class Digits(torch.utils.data.Dataset):
    """The same on each rank."""

    def __init__(self):
        dice = torch.Generator().manual_seed(1)
        self.images = torch.rand(SAMPLES, 64, generator=dice)
        self.labels = (self.images @ torch.randn(64, 10, generator=dice)).argmax(1)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Net(torch.nn.Sequential):
    """Of a class of its own, because PyTorch 2.8 does not compile one that has only PyTorch's own code."""

    def forward(self, inputs):
        return super().forward(inputs)


class Centred(torch.nn.Module):
    """BatchNorm itself rejects a single sample."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, inputs):
        self.mean.lerp_(inputs.detach().mean(0), 0.1)
        return inputs - self.mean


def weights_of(model):
    return [value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]


def compute(file, rank):
    """More than the machine is late by when others use it."""
    if file.exists():
        time.sleep(0.8 if file.read_text() == str(rank) else 0.08)


def counted_in(file):
    """A backend of torch.compile."""
    def compiled(graph, inputs):
        sizes = [size for each in inputs for size in (each.shape if isinstance(each, torch.Tensor) else [each])]
        with file.open("a") as graphs:
            graphs.write("any rows\n" if any(isinstance(size, torch.SymInt) for size in sizes) else "none or one\n")
        return graph.forward
    return compiled


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("RANK", 0)))  # differs between ranks: join makes them equal
    middle = [Centred(48)] if "centres" in sys.argv else []
    model = Net(torch.nn.Linear(64, 48), *middle, torch.nn.ReLU(), torch.nn.Linear(48, 10)).to(DEVICE)
    if "compiles" in sys.argv:
        model.compile(backend=counted_in(folder / f"compiled-{os.getpid()}"), dynamic=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100, gamma=0.9)
    state = [optimizer, scheduler]
    if "forgets" in sys.argv:
        state, scheduler = [optimizer], torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    options = {"checkpoints": folder / "checkpoints"} if "saves" in sys.argv else {}
    if "windows" in sys.argv:
        options.update(average_every=AVERAGE_EVERY, outer_optimizer=torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True))
    (folder / f"joins-{os.getpid()}").touch()
    job = lockstep.join(model, *state, **options)
    data = Digits()
    loss_of = torch.nn.CrossEntropyLoss()
    try:
        for batch in job.batches(data, BATCH, epochs=epochs, seed=3):
            pause(folder, 0.3, job.finished_steps, epochs * STEPS_PER_EPOCH)  # between the batch and its step, where a round may end, too
            with job.step() as step:
                optimizer.zero_grad()
                compute(folder / "computes", job.rank)
                for micro in step.accumulate(batch, 16):
                    loss = loss_of(job.model(micro.inputs.to(DEVICE)), micro.targets.to(DEVICE)) * micro.part
                    step.report(loss / micro.part)
                    loss.backward()
                optimizer.step()
                scheduler.step()
            if (folder / "saves").exists() and job.finished_steps % SAVE_EVERY == 0:
                job.save()
            if "windows" in sys.argv and step.is_committed and (job.finished_steps % AVERAGE_EVERY == 0 or batch.is_last):
                digest = hashlib.sha256(repr(weights_of(model)).encode()).hexdigest()
                with open(folder / f"averages-{os.getpid()}", "a") as averages:
                    averages.write(f"{job.round} {job.finished_steps} {digest}\n")
            holds = folder / f"holds-{job.rank}"
            if holds.exists():
                seconds = int(holds.read_text())
                holds.unlink()
                ctypes.PyDLL(None).sleep(seconds)
    except lockstep.Stopped:
        (folder / f"stopped-{job.rank}").touch()
        raise
    measured = job.evaluate(data, 512, lambda batch: {"loss": loss_of(model(batch.inputs.to(DEVICE)), batch.targets.to(DEVICE))})
    (folder / f"final-{job.rank}.json").write_text(json.dumps({
        "pid": os.getpid(), "world": job.world, "steps": job.finished_steps, "rate": scheduler.get_last_lr()[0],
        "loss": measured["loss"], "weights": weights_of(model)}))


if __name__ == "__main__":
    main()
