"""The training of a manifest in Python: continues from the earliest checkpoint, on the samples that a ledger names, and prints how far
its weights are from those of each later checkpoint. Several ranks (torchrun) divide the model with `fully_shard`.

reference.py TRAINING_JSON CHECKPOINTS LEDGER
"""
import fnmatch
import gzip
import json
import math
import os
import pathlib
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import ledger  # noqa: E402
from scripted import NormCnn  # noqa: E402
from torch_models import make_model  # noqa: E402

torch.set_num_threads(1)
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def read_checkpoint(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    tensors = {}
    for shard in manifest["shards"]:
        content = (folder / shard["name"]).read_bytes()
        for tensor in shard["tensors"]:
            numbers = numpy.frombuffer(content, {"F32": "<f4", "I64": "<i8"}[tensor["dtype"]], math.prod(tensor["shape"]), tensor["offset"])
            tensors[tensor["name"]] = torch.from_numpy(numbers.copy()).reshape(tensor["shape"])
    return manifest["step"], tensors


def read_idx(path):
    content = gzip.open(path).read()
    return torch.frombuffer(bytearray(content[4 + 4 * content[3]:]), dtype=torch.uint8).reshape(
        [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(content[3])])


class Images:
    def __init__(self, path):
        self.images = read_idx(f"{path}/train-images-idx3-ubyte.gz").unsqueeze(1)
        self.labels = read_idx(f"{path}/train-labels-idx1-ubyte.gz").long()
        whole = self.images.double()
        self.mean, self.deviation = whole.mean().item(), whole.std(unbiased=False).item()

    def get(self, ids):
        return (self.images[ids].float() - self.mean) / self.deviation, self.labels[ids]


class Tokens:
    def __init__(self, path, length):
        self.tokens = torch.tensor(list(pathlib.Path(path, "train.txt").read_bytes()))
        self.length = length

    def get(self, ids):
        cut = torch.stack([self.tokens[i * self.length:(i + 1) * self.length + 1] for i in ids])
        return cut[:, :-1], cut[:, 1:]


def shard(model):
    for block in model.h:
        fully_shard(block)
    fully_shard(model)


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al. 2020, "Large Batch Optimization for Deep Learning", line by line; the function of the norm is the norm itself."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for x in group["params"]:
                state, g = self.state[x], x.grad
                state["step"] += 1
                m = state["exp_avg"] = beta1 * state["exp_avg"] + (1 - beta1) * g
                v = state["exp_avg_sq"] = beta2 * state["exp_avg_sq"] + (1 - beta2) * g ** 2
                m = m / (1 - beta1 ** state["step"])
                v = v / (1 - beta2 ** state["step"])
                direction = m / (v.sqrt() + 1e-8) + group["weight_decay"] * x
                norms = x.norm(), direction.norm()
                x -= group["lr"] * (norms[0] / norms[1] if all(norms) else 1) * direction


def make_optimizers(spec, model, tensors, step):
    """Together they train all parameters."""
    decay, rate, momentum = spec.get("weightDecay", 0), spec["learningRate"], spec.get("momentum", 0)
    excluded = [pattern for group in spec.get("groups", []) if not group.get("useMuon", True) for pattern in group["match"]]
    by_muon = {name for name, parameter in model.named_parameters()
               if spec["name"] == "muon" and parameter.ndim == 2 and not any(fnmatch.fnmatchcase(name, pattern) for pattern in excluded)}
    others = [parameter for name, parameter in model.named_parameters() if name not in by_muon]
    if spec["name"] == "sgd":
        optimizers = [torch.optim.SGD(others, rate, momentum, weight_decay=decay, nesterov=spec.get("nesterov", False))]
    else:
        kind = {"adam": torch.optim.Adam, "lamb": Lamb}.get(spec["name"], torch.optim.AdamW)
        optimizers = [kind(others, rate, (0.9, spec.get("beta2", 0.999)), weight_decay=decay)]
    if by_muon:
        optimizers.append(torch.optim.Muon([model.get_parameter(name) for name in by_muon], rate, decay, momentum, spec.get("nesterov", False),
                                           adjust_lr_fn="match_rms_adamw"))
    for name, parameter in model.named_parameters():
        def stored(slot):
            tensor = tensors[f"optimizer.{slot}.{name}"]
            return distribute_tensor(tensor, parameter.device_mesh, parameter.placements) if WORLD > 1 else tensor
        if spec["name"] == "sgd":
            optimizers[0].state[parameter]["momentum_buffer"] = stored("momentum")
        elif name in by_muon:
            optimizers[1].state[parameter]["momentum_buffer"] = stored("momentum")
        else:
            mean = stored("momentum" if spec["name"] == "muon" else "exp_avg")
            optimizers[0].state[parameter] = {"step": torch.tensor(float(step)), "exp_avg": mean, "exp_avg_sq": stored("exp_avg_sq")}
    return optimizers


def averages(model, tensors):
    """Those of a checkpoint, by the name of the parameter."""
    return {name: tensors[name] + tensors[f"optimizer.average_minus_weight.{name}"] for name, _ in model.named_parameters()}


def make_average(decay, model, tensors):
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    average.module.load_state_dict(averages(model, tensors), strict=False)
    average.n_averaged.fill_(1)  # 0 would take the weights of the next step for the average
    return average


def make_schedule(spec, optimizer, total, base):
    warm = spec.get("warmupSteps", 0)
    rest, floor = total - 1 - warm, spec.get("minLearningRate", 0)
    after = {"constant": lambda: lr_scheduler.ConstantLR(optimizer, 1),
             "step": lambda: lr_scheduler.StepLR(optimizer, spec["decayEverySteps"], spec["decayFactor"]),
             "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, rest, floor),
             "polynomial": lambda: lr_scheduler.LambdaLR(
                 optimizer, lambda t: (floor + (base - floor) * (1 - t / rest) ** spec.get("power", 1)) / base)}[spec.get("name", "constant")]()
    if not warm:
        return after
    return lr_scheduler.SequentialLR(optimizer, [lr_scheduler.LinearLR(optimizer, 1 / warm, 1, warm - 1), after], [warm])


def distance(model, tensors):
    squares = total = 0.0
    for name, parameter in model.named_parameters():
        whole = parameter.detach().full_tensor() if WORLD > 1 else parameter.detach()
        squares += (whole - tensors[name]).double().square().sum().item()
        total += tensors[name].double().square().sum().item()
    return math.sqrt(squares / total)


def main(training_file, checkpoints, ledger_folder):
    training = json.loads(pathlib.Path(training_file).read_text())
    stored = dict(read_checkpoint(path.parent) for path in pathlib.Path(checkpoints).rglob("step-*/manifest.json"))
    first, last = min(stored), max(stored)
    samples = ledger.history(ledger_folder)
    data = Tokens(training["data"]["path"], training["model"]["gpt"]["contextLength"]) if training["model"]["name"] == "gpt" else Images(training["data"]["path"])

    model = NormCnn() if training["model"]["name"] == "torchscript" else make_model(training["model"])
    model.load_state_dict({name: stored[first][name] for name in model.state_dict() if name in stored[first]}, strict=False)
    if WORLD > 1:
        dist.init_process_group("gloo")
        shard(model)
    optimizers = make_optimizers(training["optimizer"], model, stored[first], first)
    decay = training["optimizer"].get("weightAverage", {}).get("decay")
    average = make_average(decay, model, stored[first]) if decay else None
    schedules = [make_schedule(training.get("schedule", {}), optimizer, training["steps"], training["optimizer"]["learningRate"])
                 for optimizer in optimizers]
    for schedule in schedules:
        for _ in range(first):
            schedule.step()
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=training.get("precision") == "bf16")
    worst, compared = 0.0, 0
    for step in range(first, last):
        ids = samples[step][RANK::WORLD]
        size = training.get("microBatchSize", len(ids))
        model.zero_grad()
        for begin in range(0, len(ids), size):
            inputs, targets = data.get(ids[begin:begin + size])
            with autocast:
                logits = model(inputs)
                loss = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="sum")
            (loss / (targets.numel() / len(targets)) / len(samples[step]) * WORLD).backward()  # fully_shard takes the mean of the ranks
        if "clipNorm" in training["optimizer"]:
            nn.utils.clip_grad_norm_(model.parameters(), training["optimizer"]["clipNorm"])
        for optimizer, schedule in zip(optimizers, schedules):
            optimizer.step()
            schedule.step()
        if average:
            average.update_parameters(model)
        if step + 1 in stored:
            compared += 1
            worst = max(worst, distance(model, stored[step + 1]))
            if average:
                worst = max(worst, distance(average.module, averages(model, stored[step + 1])))
    if RANK == 0:
        print(json.dumps({"from": first, "to": last, "compared": compared, "worst": worst}))


main(*sys.argv[1:])
