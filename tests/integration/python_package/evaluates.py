"""A script that evaluates while it trains, after some steps and after each epoch. evaluates.py FOLDER EPOCHS [STEPS]

Evaluates after each STEPS steps. While FOLDER/slowly exists, steps and batches of an evaluation take longer. While FOLDER/until-stopped exists, a batch of
one waits until the job is stopped. Each process writes FOLDER/measured-PID, lines of round, step, whether it is in the loop, and the first and last of its
samples, and FOLDER/evaluations-PID, lines of step, whether in the loop, and the result. At the end: FOLDER/final-RANK.json.
"""
import json
import os
import pathlib
import sys
import time

import torch

import lockstep
from pauses import pause
from train import BATCH, Digits

EVALUATE_EVERY, STEPS_PER_EPOCH = 20, 64
EVALUATED_AT_ONCE = 96  # of 2017 samples on three ranks, one has a batch more


class Network(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
        self.register_buffer("of_all_ranks", torch.ones(1))  # which DistributedDataParallel sends in forward passes


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    every = int(sys.argv[3]) if len(sys.argv) > 3 else EVALUATE_EVERY
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    job = lockstep.join(model, optimizer)
    data = Digits()
    loss_of = torch.nn.CrossEntropyLoss()

    def evaluate(at, in_loop):
        def measure(batch):
            if (folder / "slowly").exists():
                time.sleep(0.1)
            with open(folder / f"measured-{os.getpid()}", "a") as measured:
                measured.write(json.dumps([job.round, at, in_loop, batch.ids[0], batch.ids[-1]]) + "\n")
            while (folder / "until-stopped").exists() and job._control.stop_at is None:
                time.sleep(0.01)
            outputs = job.model(batch.inputs)
            return {"loss": loss_of(outputs, batch.targets), "accuracy": (outputs.argmax(1) == batch.targets).float().mean(),
                    "counted": 1, "position": sum(batch.ids) / len(batch.ids)}  # these say which samples the means are of

        result = job.evaluate(data, EVALUATED_AT_ONCE, measure)
        with open(folder / f"evaluations-{os.getpid()}", "a") as evaluations:
            evaluations.write(json.dumps([at, in_loop, result]) + "\n")

    try:
        for epoch in range(epochs):
            for batch in job.batches(data, BATCH, epochs=1):
                pause(folder, 0.2, job.finished_steps, epochs * STEPS_PER_EPOCH)
                with job.step() as step:
                    optimizer.zero_grad()
                    loss_of(job.model(batch.inputs), batch.targets).backward()
                    optimizer.step()
                if step.is_committed and job.finished_steps % every == 0:
                    evaluate(job.finished_steps, in_loop=True)
            evaluate((epoch + 1) * STEPS_PER_EPOCH, in_loop=False)
    except lockstep.Stopped:
        (folder / f"stopped-{job.rank}").touch()
        raise
    (folder / f"final-{job.rank}.json").write_text(json.dumps({"loss": loss_of(model(data.images), data.labels).item()}))


if __name__ == "__main__":
    main()
