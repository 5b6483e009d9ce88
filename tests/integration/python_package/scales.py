"""A script with a gradient scaler and clipping, as mixed precision has them. scales.py FOLDER EPOCHS

The loss of one sample is infinite, so the scaler skips a step of each epoch, on all ranks. While FOLDER/slowly exists each step takes longer. Each rank writes what it came
to: FOLDER/final-RANK.json.
"""
import json
import os
import pathlib
import sys

import torch

import lockstep
from pauses import pause
from train import BATCH, STEPS_PER_EPOCH, Digits, weights_of

INFINITE = 100  # position of the sample


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("RANK", 0)))
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=10)
    job = lockstep.join(model, optimizer, scaler)
    for batch in job.batches(Digits(), BATCH, epochs=epochs, seed=3):
        pause(folder, 0.3, job.finished_steps, epochs * STEPS_PER_EPOCH)
        with job.step() as step:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(job.model(batch.inputs), batch.targets)
            if INFINITE in batch.ids:
                loss = loss * float("inf")
            step.report(loss)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    (folder / f"final-{job.rank}.json").write_text(json.dumps({"steps": job.finished_steps, "scale": scaler.get_scale(), "weights": weights_of(model)}))


if __name__ == "__main__":
    main()
