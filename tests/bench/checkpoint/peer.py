"""What checkpoint.py measures Lockstep beside: DistributedDataParallel over Gloo that saves as PyTorch offers it.

peer.py SETTINGS.json    trains, then reads the newest checkpoint into another model; rank 0 writes times into settings["report"]

torch.save: rank 0, beside the target and renamed, while the others wait at the next gradient. dcp.save, async_save: of torch.distributed.checkpoint, by all
ranks, async_save through a group of its own, as it sends beside the training. A save waits for the one before, as users are told to do.
"""
import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "step"))
from ddp import model_of  # noqa: E402


class Saver:
    def __init__(self, settings, model, optimizer):
        self.variant, self.folder = settings["variant"], pathlib.Path(settings["stored"])
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
        else:
            self.wait()
            self.pending = dcp.async_save(self.state(), checkpoint_id=place, process_group=self.group)
            self.pending.add_done_callback(lambda _: record.update(seconds=time.monotonic() - begin))
        record["stall_seconds"] = time.monotonic() - begin
        if self.variant != "async_save":
            record["seconds"] = record["stall_seconds"]

    def wait(self):
        if self.pending is not None:
            self.pending.result()

    def restore(self):
        newest = max(path for path in self.folder.iterdir() if path.suffix != ".partial")
        if self.variant == "torch.save":
            stored = torch.load(newest)
            self.model.load_state_dict(stored["model"])
            self.optimizer.load_state_dict(stored["optimizer"])
            return
        state = self.state()
        dcp.load(state, checkpoint_id=newest)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def seconds_of_memcpy(model):
    """Of as many bytes as weights and momentum have, into memory that was there before; the second time."""
    tensors = [parameter.detach() for parameter in model.parameters()] * 2
    copies = [torch.empty_like(tensor) for tensor in tensors]
    for _ in range(2):
        begin = time.monotonic()
        for copy, tensor in zip(copies, tensors):
            copy.copy_(tensor)
        seconds = time.monotonic() - begin
    return seconds


def model_and_optimizer(settings):
    model = model_of(settings["model"], settings["classes"])
    return model, torch.optim.SGD(model.parameters(), lr=settings["optimizer"]["learningRate"],
                                  momentum=settings["optimizer"]["momentum"])


def train(settings, model, optimizer, saver):
    """When each step was finished."""
    samples, batch = settings["samples"], settings["batch"]
    inputs, targets = torch.randn(samples, 1, 28, 28), torch.randint(settings["classes"], (samples,))
    parallel = DistributedDataParallel(model)
    commits = {}
    for step in range(settings["steps"]):
        chosen = torch.arange(step * batch, (step + 1) * batch) % samples
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(inputs[chosen]), targets[chosen])
        loss.backward()
        optimizer.step()
        commits[step] = time.time()
        if saver and (step + 1) % settings["every"] == 0:
            saver.save(step + 1)
    return commits


def seconds_of_restore(settings):
    """Until all ranks have it."""
    other = Saver(settings, *model_and_optimizer(settings))
    dist.barrier()
    begin = time.monotonic()
    other.restore()
    dist.barrier()
    return time.monotonic() - begin


def main():
    settings = json.load(open(sys.argv[1]))
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    dist.init_process_group("gloo")
    model, optimizer = model_and_optimizer(settings)
    report = {"memcpy": seconds_of_memcpy(model), "saves": []}
    saver = Saver(settings, model, optimizer) if settings["every"] else None
    report["commits"] = train(settings, model, optimizer, saver)
    if saver:
        saver.wait()
        report |= {"saves": saver.saves, "restore": seconds_of_restore(settings)}
    if dist.get_rank() == 0:
        pathlib.Path(settings["report"]).write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
