"""What checkpoint.py compares Lockstep with: DistributedDataParallel over Gloo or NCCL that saves as PyTorch offers it.

peer.py SETTINGS.json    trains, then reads the newest checkpoint into another model; rank 0 writes times into settings["report"]

torch.save: rank 0, under a temporary name and renamed, while the others wait at the next gradient. dcp.save, async_save: of torch.distributed.checkpoint, by all
ranks, async_save through a separate group, because it sends while training runs. A save waits for the one before, as the documentation recommends.
lockstep.checkpoint: dcp.save into the storage of our package, as a script uses it that does not join; restored from memory.
"""
import concurrent.futures
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "step"))
import ddp  # noqa: E402
from lockstep import checkpoint  # noqa: E402


class Saver:
    def __init__(self, settings, model, optimizer):
        self.settings, self.variant, self.folder = settings, settings["variant"], pathlib.Path(settings["stored"])
        self.model, self.optimizer = model, optimizer
        self.group = dist.new_group(backend="gloo") if self.variant == "async_save" else None
        self.pending = None
        self.saves = []
        if dist.get_rank() == 0:
            self.folder.mkdir(exist_ok=True)

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def save(self, step):
        ddp.finish_queued(self.settings)  # what the training takes is not the save's
        begin = time.monotonic()
        place = self.folder / f"step-{step:06}"
        record = {"step": step}
        self.saves.append(record)
        if self.variant == "torch.save":
            if dist.get_rank() == 0:
                torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, place.with_suffix(".partial"))
                place.with_suffix(".partial").rename(place)
        elif self.variant == "dcp.save":
            dcp.save(self.state(), checkpoint_id=place)
        elif self.variant == "lockstep.checkpoint":
            self.wait()
            done = self.pending = concurrent.futures.Future()
            dcp.save(self.state(), storage_writer=checkpoint.Writer(self.folder, step, keep=1, on_stored=done.set_result))
            done.add_done_callback(lambda _: record.update(seconds=time.monotonic() - begin))
        else:
            self.wait()
            self.pending = dcp.async_save(self.state(), checkpoint_id=place, process_group=self.group)
            self.pending.add_done_callback(lambda _: record.update(seconds=time.monotonic() - begin))
        record["stall_seconds"] = time.monotonic() - begin
        if self.pending is None:
            record["seconds"] = record["stall_seconds"]

    def wait(self):
        # Only the rank that coordinates knows when all of ours is stored.
        if self.pending is not None and (self.variant == "async_save" or dist.get_rank() == 0):
            self.pending.result()

    def restore(self):
        if self.variant == "lockstep.checkpoint":
            state = self.state()
            dcp.load(state, storage_reader=checkpoint.Reader(self.folder))
            set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            return
        newest = max(path for path in self.folder.iterdir() if path.suffix != ".partial")
        if self.variant == "torch.save":
            stored = torch.load(newest)
            self.model.load_state_dict(stored["model"])
            self.optimizer.load_state_dict(stored["optimizer"])
            return
        state = self.state()
        dcp.load(state, checkpoint_id=newest)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def seconds_of_memcpy(settings, model):
    """Of as many bytes as weights and moments have, into memory that was there before; the second time."""
    moments = 2 if settings["optimizer"]["name"] == "adamw" else 1
    tensors = [parameter.detach() for parameter in model.parameters()] * (1 + moments)
    copies = [torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda) for tensor in tensors]
    for _ in range(2):
        begin = time.monotonic()
        for copy, tensor in zip(copies, tensors):
            copy.copy_(tensor, non_blocking=True)
        ddp.finish_queued(settings)
        seconds = time.monotonic() - begin
    return seconds


def train(settings, training, saver):
    """When each step was finished."""
    samples, batch = settings["samples"], settings["batch"]
    commits = {}
    for step in range(settings["steps"]):
        training.step(torch.arange(step * batch, (step + 1) * batch, device=settings["device"]) % samples)
        commits[step] = time.time()
        if saver and (step + 1) % settings["every"] == 0:
            saver.save(step + 1)
    return commits


def seconds_of_restore(settings):
    """Until all ranks have it."""
    model = ddp.model_of(settings).to(settings["device"])
    other = Saver(settings, model, ddp.optimizer_of(model.parameters(), settings))
    dist.barrier()
    begin = time.monotonic()
    other.restore()
    dist.barrier()
    ddp.finish_queued(settings)
    return time.monotonic() - begin


def main():
    settings = json.load(open(sys.argv[1]))
    ddp.begin(settings)
    training = ddp.Training(settings)
    report = {"saves": []}
    if settings["every"]:
        saver = Saver(settings, training.model, training.optimizer)
        report["commits"] = train(settings, training, saver)
        saver.wait()
        report |= {"saves": saver.saves, "restore": seconds_of_restore(settings)}
    else:
        report["memcpy"] = seconds_of_memcpy(settings, training.model)
        report["commits"] = train(settings, training, None)
    if dist.get_rank() == 0:
        pathlib.Path(settings["report"]).write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
