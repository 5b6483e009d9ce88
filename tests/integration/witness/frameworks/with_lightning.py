"""A linear model that Lightning trains and validates.

with_lightning.py FOLDER STEPS    checkpoints are in FOLDER; it continues from the newest
"""
import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Linear(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def on_train_start(self):
        print(f"starts at step {self.global_step}", flush=True)

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("validation", torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def points(count):
    return DataLoader(TensorDataset(torch.randn(count, 32), torch.randint(0, 2, (count,))), batch_size=8)


checkpoints = ModelCheckpoint(dirpath=sys.argv[1], save_last=True, every_n_train_steps=20)
trainer = lightning.Trainer(max_steps=int(sys.argv[2]), accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
                            strategy="ddp", enable_progress_bar=False, callbacks=[checkpoints], logger=False, val_check_interval=20)
trainer.fit(Linear(), points(4000), points(80), ckpt_path="last")
