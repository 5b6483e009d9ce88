"""The training of ddp.py by the Python package `lockstep`: the ranks that survive keep their process and their state.

joined.py SETTINGS.json    trains until it is ended; the package writes the sample ledger
"""
import json
import sys

import torch

import lockstep
from ddp import model_of


def main():
    settings = json.load(open(sys.argv[1]))
    torch.set_num_threads(1)
    torch.manual_seed(settings["seed"])
    data = torch.utils.data.TensorDataset(torch.rand(settings["samples"], settings["features"]), torch.randint(settings["classes"], (settings["samples"],)))
    model = model_of(settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["learning_rate"], momentum=settings["momentum"])
    job = lockstep.join(model, optimizer)
    for batch in job.batches(data, settings["global_batch"], steps=1_000_000, seed=settings["seed"]):
        with job.step():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(job.model(batch.inputs), batch.targets).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
