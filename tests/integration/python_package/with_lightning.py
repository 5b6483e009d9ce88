"""A linear model that Lightning trains and validates, with the two lines that make it elastic. with_lightning.py FOLDER EPOCHS

It continues from the newest checkpoint in FOLDER/out. While FOLDER/slowly exists each step takes longer. Each rank writes what it came to: FOLDER/final-RANK.json.
"""
import json
import os
import pathlib
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import lockstep.lightning
from pauses import pause

SAMPLES, BATCH = 401, 16  # in the last step of an epoch there is one sample, so most ranks have none


class Linear(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def training_step(self, batch, _):
        loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("validation", torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma=0.9), "interval": "step"}}

    def on_train_batch_end(self, *_):
        pause(pathlib.Path(sys.argv[1]), 0.3, self.trainer.global_step, self.trainer.estimated_stepping_batches)


def points(count):
    dice = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 32, generator=dice)
    data = torch.utils.data.TensorDataset(inputs, (inputs[:, 0] > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=4, shuffle=count == SAMPLES)


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("RANK", 0)))  # differs between ranks: joining makes them equal
    model = Linear()
    checkpoints = ModelCheckpoint(dirpath=folder / "out", save_last=True, every_n_train_steps=20)
    strategy = lockstep.lightning.LockstepStrategy(global_batch_size=BATCH, seed=3)
    trainer = lightning.Trainer(strategy=strategy, max_epochs=epochs, accelerator="auto", callbacks=[checkpoints], logger=False, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(model, points(SAMPLES), points(40), ckpt_path="last")
    (folder / f"final-{strategy.job.rank}.json").write_text(json.dumps({
        "pid": os.getpid(), "world": strategy.job.world, "steps": strategy.job.finished_steps, "global_step": trainer.global_step,
        "epoch": trainer.current_epoch, "rate": trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0],
        "weights": [value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]}))


if __name__ == "__main__":
    main()
