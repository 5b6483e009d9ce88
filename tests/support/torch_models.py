"""The models of runtime/models in Python, with the same names of parameters: what tests and benches compare with."""
import torch
from torch import nn
from torch.nn import functional as F


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
