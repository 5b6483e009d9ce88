"""A script whose model is sharded over the ranks of each pod (FSDP2), as the package's users write it. hsdp.py FOLDER EPOCHS [saves]

While FOLDER/slowly exists each step takes longer. With `saves` it saves now and then. Each rank writes what it came to: FOLDER/final-RANK.json.
"""
import json
import os
import pathlib
import sys

import torch
from torch.distributed.fsdp import fully_shard

import lockstep
from pauses import pause

SAMPLES, BATCH = 601, 30  # of four ranks two have 8 samples and two have 7; in the last step of an epoch there is one
SAVE_EVERY, EVALUATE_EVERY = 5, 10
EVALUATED_AT_ONCE = 50  # of four ranks one has a batch more
MICRO = 7  # so some ranks need two passes, and others one


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("GROUP_RANK", 0)))  # differs between pods: join makes them equal
    model = torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.ReLU(), torch.nn.Linear(33, 7)).double()  # so sums in another order differ little
    mesh = lockstep.shard_mesh()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, gamma=0.9)
    job = lockstep.join(model, optimizer, scheduler, checkpoints=folder / "checkpoints" if "saves" in sys.argv else None)
    dice = torch.Generator().manual_seed(1)
    images = torch.rand(SAMPLES, 16, generator=dice).double()
    labels = (images @ torch.randn(16, 7, generator=dice).double()).argmax(1)
    loss_of, loss = torch.nn.CrossEntropyLoss(), None
    data = torch.utils.data.TensorDataset(images, labels)

    def evaluate():
        return job.evaluate(data, EVALUATED_AT_ONCE, lambda batch: {"loss": loss_of(job.model(batch.inputs), batch.targets)})

    for batch in job.batches(data, BATCH, epochs=epochs, seed=3):
        pause(folder, 0.25, job.finished_steps, epochs * -(-SAMPLES // BATCH))
        with job.step() as step:
            assert step.total(len(batch.ids)) == batch.global_size
            optimizer.zero_grad()
            for micro in step.accumulate(batch, MICRO):
                loss = loss_of(job.model(micro.inputs), micro.targets) * micro.part
                step.report(loss / micro.part)
                loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
        if job.finished_steps % EVALUATE_EVERY == 0:
            evaluate()
        if "saves" in sys.argv and job.finished_steps % SAVE_EVERY == 0:
            job.save()
    evaluated = evaluate()["loss"]
    whole = {name: value.full_tensor().flatten().tolist() for name, value in model.state_dict().items()}
    (folder / f"final-{job.rank}.json").write_text(json.dumps(
        {"made_steps": loss is not None, "evaluated": evaluated, "steps": job.finished_steps, "rate": scheduler.get_last_lr()[0], "weights": sum(whole.values(), [])}))


if __name__ == "__main__":
    main()
