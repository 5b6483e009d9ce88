"""A loop of one's own with Accelerate, which accumulates the gradients of two batches.

with_accelerate.py FOLDER STEPS    checkpoints are in FOLDER; it continues from the newest
"""
import os
import pathlib
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

folder, wanted = pathlib.Path(sys.argv[1]), int(sys.argv[2])
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(32, 2)
loader = DataLoader(TensorDataset(torch.randn(8000, 32), torch.randint(0, 2, (8000,))), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)


class Steps:
    """What Accelerate saves and loads in addition to model and optimizer."""
    count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


steps = Steps()
accelerator.register_for_checkpointing(steps)
saved = sorted(folder.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
if saved:
    accelerator.load_state(saved[-1])
print(f"starts at step {steps.count}", flush=True)
while steps.count < wanted:
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        steps.count += accelerator.sync_gradients
        if accelerator.sync_gradients and steps.count % 50 == 0:
            accelerator.save_state(folder / "partial")
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                os.rename(folder / "partial", folder / f"step-{steps.count}")
            accelerator.wait_for_everyone()
        if steps.count == wanted:
            break
accelerator.end_training()
