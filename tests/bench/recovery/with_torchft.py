"""The training of ddp.py by torchft: each process is a replica group with a manager and a store of its own, and a lighthouse decides who is in a step.

with_torchft.py SETTINGS.json REPLICA    trains until it is ended; TORCHFT_LIGHTHOUSE has the address of the lighthouse

As torchft's documentation has it: its sampler gives each replica a part of the samples, a batch whose step fails is skipped, and a replica that is
started again continues in its part where its last process was. The position is stored in each step, as that documentation recommends.
"""
import datetime
import os
import sys

import torch
import torch.distributed as dist
import torchft

import training

REPLICAS = 3


class DistributedDataParallel(torchft.DistributedDataParallel):
    """The hook of torchft 0.2.0 has an assertion that fails when an all-reduce fails, so its survivors end. This one hands the bucket back: the
    manager has noted the error, and the step is not committed."""

    @staticmethod
    def _comm_hook(manager, bucket):
        manager.allreduce(bucket.buffer()).wait()
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future


class Manager(torchft.Manager):
    """Writes the line of a contribution when it is known which replicas are in the step, before the first all-reduce of the step."""

    def __init__(self, lines, replica, **options):
        super().__init__(**options)
        self.lines, self.replica, self.drawn = lines, replica, None

    def allreduce(self, tensor, *arguments, **options):
        self.wait_quorum()
        if self.drawn and self.is_participating():  # torchft sets the gradients of a replica to zero that has no state yet
            epoch, ids = self.drawn
            self.lines.contribute(self.round(), self.current_step(), self.replica, ids, epoch=epoch)
        self.drawn = None
        return super().allreduce(tensor, *arguments, **options)

    def round(self):
        return self._quorum_id  # which has no public name


class Draws:
    """The batches of this replica, from where its last process was."""

    def __init__(self, settings, replica):
        self.sampler = torchft.DistributedSampler(range(settings["samples"]), replica, REPLICAS, group_rank=0, num_replicas=1, seed=settings["seed"])
        self.share = settings["global_batch"] // REPLICAS
        self.file = os.open(f"{settings['ledger']}/position-{replica}", os.O_RDWR | os.O_CREAT)
        self.next = int(os.pread(self.file, 20, 0) or 0)

    def __iter__(self):
        """(epoch, ids) for ever."""
        steps = len(self.sampler) // self.share
        while True:
            epoch, first = divmod(self.next, steps)
            self.sampler.set_epoch(epoch)
            ids = list(self.sampler)
            for step in range(first, steps):
                yield epoch, ids[step * self.share:(step + 1) * self.share]
                self.next += 1
                os.pwrite(self.file, b"%20d" % self.next, 0)


def main():
    settings, replica = training.settings(), int(sys.argv[2])
    inputs, targets = training.data_of(settings)
    model = training.model_of(settings)
    inner = training.optimizer_of(settings, model)
    lines = training.Lines(settings)
    lines.imported()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(state):
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(lines, replica, pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(seconds=5)), min_replica_size=1,
                      load_state_dict=load, state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
                      replica_id=f"recovery_{replica}", timeout=datetime.timedelta(seconds=30),
                      rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port)
    parallel = DistributedDataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, inner)
    for epoch, ids in Draws(settings, replica):
        manager.drawn = epoch, ids
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(inputs[ids]), targets[ids]).backward()
        step = manager.current_step()
        optimizer.step()
        if manager.current_step() > step:
            lines.commit(manager.round(), step, replica)


if __name__ == "__main__":
    main()
