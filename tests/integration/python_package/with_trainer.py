"""A small language model that Hugging Face's Trainer trains, with the two lines that make it elastic. with_trainer.py FOLDER EPOCHS [STEPS]

Evaluates after each epoch; with STEPS at the start, and after so many steps, which changes the learning rate. It continues from the newest checkpoint in
FOLDER/out. While FOLDER/slowly exists each step takes longer. Each rank writes what it came to: FOLDER/final-RANK.json.
"""
import json
import os
import pathlib
import sys

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

import lockstep.transformers
from pauses import pause

SAMPLES, BATCH = 401, 16  # in the last step of an epoch there is one sample, so most ranks have none


class Counting(torch.utils.data.Dataset):
    """Texts of which some have far fewer labels than others, so the tokens of a rank are not in proportion to its samples."""

    def __init__(self, size):
        self.size, self.read = size, 0

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index >= self.size:
            raise IndexError
        self.read += 1
        tokens = torch.arange(index, index + 16) % 31
        return {"input_ids": tokens, "labels": torch.where(torch.arange(16) < 3 + index % 14, tokens, -100)}


class Slowly(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        pause(pathlib.Path(sys.argv[1]), 0.3, state.global_step, state.max_steps)


def main():
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    (folder / "out").mkdir(exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ.get("RANK", 0)))  # differs between ranks: joining makes them equal
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=31, n_positions=16, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0))
    evaluation = {"eval_strategy": "epoch"}
    if len(sys.argv) > 3:
        evaluation = {"eval_strategy": "steps", "eval_steps": int(sys.argv[3]), "eval_on_start": True, "metric_for_best_model": "loss",
                      "lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": {"mode": "max", "factor": 0.99, "patience": 0}}  # a loss that falls is no improvement
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"), num_train_epochs=epochs, per_device_train_batch_size=4, learning_rate=0.01, warmup_steps=10, logging_steps=10,
        **evaluation, save_steps=20, save_total_limit=2, use_cpu=not torch.cuda.is_available(), disable_tqdm=True, report_to="none", seed=3)
    to_evaluate = Counting(20)
    trainer = transformers.Trainer(model, arguments, train_dataset=Counting(SAMPLES), eval_dataset=to_evaluate, callbacks=[Slowly()])
    lockstep.transformers.attach(trainer, global_batch_size=BATCH)
    done = trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))
    (folder / f"final-{trainer.job.rank}.json").write_text(json.dumps({
        "pid": os.getpid(), "world": trainer.job.world, "steps": trainer.job.finished_steps, "global_step": done.global_step, "epoch": trainer.state.epoch,
        "rate": trainer.lr_scheduler.get_last_lr()[0], "logged": [[each["step"], "eval_loss" in each] for each in trainer.state.log_history],
        "evaluated": {"samples": to_evaluate.read, "losses": [each["eval_loss"] for each in trainer.state.log_history if "eval_loss" in each]},
        "weights": [value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]}))


if __name__ == "__main__":
    main()
