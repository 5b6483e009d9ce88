"""A loop of one's own with Accelerate, which accumulates the gradients of two batches.

with_accelerate.py FOLDER STEPS
"""
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(32, 2)
loader = DataLoader(TensorDataset(torch.randn(8000, 32), torch.randint(0, 2, (8000,))), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
steps = 0
for inputs, targets in loader:
    with accelerator.accumulate(model):
        accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
    steps += accelerator.sync_gradients
    if steps == int(sys.argv[2]):
        break
accelerator.end_training()
