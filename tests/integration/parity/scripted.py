"""scripted.py PATH: a module of Python, saved as TorchScript."""
import sys

import torch
from torch import nn
from torch.nn import functional as F


class NormCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                      nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.output = nn.Linear(16, 10)

    def forward(self, x):
        return self.output(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


if __name__ == "__main__":
    torch.manual_seed(3)
    torch.jit.script(NormCnn()).save(sys.argv[1])
