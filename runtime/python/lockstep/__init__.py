"""Elastic training of PyTorch models: the survivors of a failure keep their process, their device and their state.

    import lockstep

    job = lockstep.join(model, optimizer)
    for batch in job.batches(dataset, global_batch_size=256, epochs=4):
        with job.step():
            optimizer.zero_grad()
            loss_fn(job.model(batch.inputs), batch.targets).backward()
            optimizer.step()

`lockstep run --nproc 4 -- python train.py` starts such a script on one machine, a DistributedTrainingJob on Kubernetes. Started by
`python train.py` alone, it trains as one process.
"""
from lockstep.batches import Batch, SamplePlan
from lockstep.errors import LockstepError, Stopped
from lockstep.job import Job, Step, join

__all__ = ["Batch", "Job", "LockstepError", "SamplePlan", "Step", "Stopped", "join"]
