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


class Residual(nn.Module):
    """Convolutions of (channels, kernel, stride), each with a norm, beside a shortcut."""

    def __init__(self, inputs, layers):
        super().__init__()
        channels, stride = inputs, 1
        for i, (width, kernel, of_this) in enumerate(layers, start=1):
            self.add_module(f"conv{i}", nn.Conv2d(channels, width, kernel, of_this, kernel // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(width))
            channels, stride = width, stride * of_this
        self.convolutions = len(layers)
        if stride != 1 or channels != inputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = x
        for i in range(1, self.convolutions + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.convolutions:
                y = F.relu(y)
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Resnet(nn.Module):
    def __init__(self, has_50_layers, small_images, channels=1, classes=10):
        super().__init__()
        self.small_images = small_images
        kernel, stride, padding = (3, 1, 1) if small_images else (7, 2, 3)
        self.conv1, self.bn1 = nn.Conv2d(channels, 64, kernel, stride, padding, bias=False), nn.BatchNorm2d(64)
        inputs = 64
        for i, blocks in enumerate((3, 4, 6, 3) if has_50_layers else (2, 2, 2, 2)):
            width, stage = 64 << i, []
            for block in range(blocks):
                stride = 2 if i > 0 and block == 0 else 1
                layers = [(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)] if has_50_layers else [(width, 3, stride), (width, 3, 1)]
                stage.append(Residual(inputs, layers))
                inputs = layers[-1][0]
            self.add_module(f"layer{i + 1}", nn.Sequential(*stage))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.small_images:
            x = F.max_pool2d(x, 3, 2, 1)
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
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def make_model(spec, channels=1, classes=10):
    """`channels`, `classes`: of a resnet; the others have those of Fashion-MNIST."""
    name = spec["name"]
    if name == "mlp":
        return Mlp(spec["mlp"]["hiddenSizes"])
    if name == "cnn":
        return Cnn(spec["cnn"]["channels"], spec["cnn"]["hiddenSize"])
    if name in ("resnet18", "resnet50"):
        return Resnet(name == "resnet50", spec.get("resnet", {}).get("smallImages", False), channels, classes)
    return Gpt(spec["gpt"])
