"""The training of ddp.py by the Python package `lockstep`: the ranks that survive keep their process and their state.

joined.py SETTINGS.json    trains until it is ended; the package writes the sample ledger
"""
import torch

from lockstep import join

import training


def main():
    settings = training.settings()
    data = torch.utils.data.TensorDataset(*training.data_of(settings))
    model = training.model_of(settings)
    optimizer = training.optimizer_of(settings, model)
    training.Lines(settings).imported()
    job = join(model, optimizer)
    for batch in job.batches(data, settings["global_batch"], steps=1_000_000, seed=settings["seed"]):
        with job.step():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(job.model(batch.inputs), batch.targets).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
