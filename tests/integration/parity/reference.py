"""The training of a manifest in Python: goes on from the earliest checkpoint, on the samples that a ledger names, and prints how far
its weights are from those of each later checkpoint.

reference.py TRAINING_JSON CHECKPOINTS LEDGER
"""
import gzip
import json
import math
import pathlib
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import ledger  # noqa: E402

torch.set_num_threads(1)


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


class Mlp(nn.Module):
    def __init__(self, hidden_sizes):
        super().__init__()
        sizes = [784, *hidden_sizes, 10]
        for i in range(len(sizes) - 1):
            self.add_module(f"fc{i + 1}", nn.Linear(sizes[i], sizes[i + 1]))

    def forward(self, x):
        x = x.flatten(1)
        *hidden, output = self.children()
        for layer in hidden:
            x = F.relu(layer(x))
        return output(x)


class Cnn(nn.Module):
    def __init__(self, channels, hidden_size):
        super().__init__()
        sizes = [1, *channels]
        for i in range(len(channels)):
            self.add_module(f"conv{i + 1}", nn.Conv2d(sizes[i], sizes[i + 1], 3, padding=1))
        self.fc1 = nn.Linear(channels[-1] * (28 >> len(channels)) ** 2, hidden_size)
        self.fc2 = nn.Linear(hidden_size, 10)
        self.convolutions = len(channels)

    def forward(self, x):
        for i in range(self.convolutions):
            x = F.max_pool2d(F.relu(getattr(self, f"conv{i + 1}")(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class SmallResnet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        inputs = 64
        for i, width in enumerate((64, 128, 256, 512)):
            self.add_module(f"layer{i + 1}", nn.Sequential(BasicBlock(inputs, width, 1 if i == 0 else 2), BasicBlock(width, width, 1)))
            inputs = width
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for i in range(4):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(size, 3 * size), nn.Linear(size, size), heads

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(size), Attention(size, heads), nn.LayerNorm(size), FeedForward(size)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, spec):
        super().__init__()
        size = spec["embeddingSize"]
        self.wte, self.wpe = nn.Embedding(spec["vocabularySize"], size), nn.Embedding(spec["contextLength"], size)
        self.h = nn.ModuleList(Block(size, spec["heads"]) for _ in range(spec["layers"]))
        self.ln_f = nn.LayerNorm(size)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def make_model(spec):
    name = spec["name"]
    if name == "mlp":
        return Mlp(spec["mlp"]["hiddenSizes"])
    if name == "cnn":
        return Cnn(spec["cnn"]["channels"], spec["cnn"]["hiddenSize"])
    if name == "resnet18":
        return SmallResnet18()
    return Gpt(spec["gpt"])


def make_optimizer(spec, model, tensors, step):
    decay = spec.get("weightDecay", 0)
    if spec["name"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), spec["learningRate"], spec.get("momentum", 0), weight_decay=decay,
                                    nesterov=spec.get("nesterov", False))
    else:
        kind = torch.optim.Adam if spec["name"] == "adam" else torch.optim.AdamW
        optimizer = kind(model.parameters(), spec["learningRate"], (0.9, spec.get("beta2", 0.999)), weight_decay=decay)
    for name, parameter in model.named_parameters():
        if spec["name"] == "sgd":
            optimizer.state[parameter]["momentum_buffer"] = tensors[f"optimizer.momentum.{name}"]
        else:
            optimizer.state[parameter] = {"step": torch.tensor(float(step)), "exp_avg": tensors[f"optimizer.exp_avg.{name}"],
                                          "exp_avg_sq": tensors[f"optimizer.exp_avg_sq.{name}"]}
    return optimizer


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
        squares += (parameter.detach() - tensors[name]).double().square().sum().item()
        total += tensors[name].double().square().sum().item()
    return math.sqrt(squares / total)


def main(training_file, checkpoints, ledger_folder):
    training = json.loads(pathlib.Path(training_file).read_text())
    stored = dict(read_checkpoint(path.parent) for path in pathlib.Path(checkpoints).rglob("step-*/manifest.json"))
    first, last = min(stored), max(stored)
    samples = ledger.history(ledger_folder)
    data = Tokens(training["data"]["path"], training["model"]["gpt"]["contextLength"]) if training["model"]["name"] == "gpt" else Images(training["data"]["path"])

    model = make_model(training["model"])
    model.load_state_dict({name: stored[first][name] for name in model.state_dict() if name in stored[first]}, strict=False)
    optimizer = make_optimizer(training["optimizer"], model, stored[first], first)
    schedule = make_schedule(training.get("schedule", {}), optimizer, training["steps"], training["optimizer"]["learningRate"])
    for _ in range(first):
        schedule.step()
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=training.get("precision") == "bf16")
    worst, compared = 0.0, 0
    for step in range(first, last):
        ids = samples[step]
        size = training.get("microBatchSize", len(ids))
        optimizer.zero_grad()
        for begin in range(0, len(ids), size):
            inputs, targets = data.get(ids[begin:begin + size])
            with autocast:
                logits = model(inputs)
                loss = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten(), reduction="sum")
            (loss / (targets.numel() / len(targets)) / len(ids)).backward()
        if "clipNorm" in training["optimizer"]:
            nn.utils.clip_grad_norm_(model.parameters(), training["optimizer"]["clipNorm"])
        optimizer.step()
        schedule.step()
        if step + 1 in stored:
            compared += 1
            worst = max(worst, distance(model, stored[step + 1]))
    print(json.dumps({"from": first, "to": last, "compared": compared, "worst": worst}))


main(*sys.argv[1:])
