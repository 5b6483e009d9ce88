"""A small language model that Hugging Face's Trainer trains.

hugging_face.py FOLDER STEPS [at-the-end]    checkpoints are in FOLDER, every 20 steps or only one at SIGTERM; it continues from the newest
"""
import sys

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Counting(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        tokens = torch.arange(i, i + 16) % 64
        return {"input_ids": tokens, "labels": tokens}


folder, steps, at_the_end = sys.argv[1], int(sys.argv[2]), "at-the-end" in sys.argv
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2))
arguments = TrainingArguments(output_dir=folder, max_steps=steps, per_device_train_batch_size=8, logging_steps=5, save_steps=20,
                              save_strategy="no" if at_the_end else "steps", enable_jit_checkpoint=at_the_end, save_total_limit=2, use_cpu=True,
                              disable_tqdm=True, report_to="none")
Trainer(model=model, args=arguments, train_dataset=Counting()).train(resume_from_checkpoint=get_last_checkpoint(folder))
