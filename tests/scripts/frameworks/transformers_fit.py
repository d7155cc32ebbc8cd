"""Hugging Face Trainer: a small GPT-2 without weights from elsewhere, its own loop, two batches accumulated."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2))
data = [{"input_ids": words, "labels": words} for words in torch.randint(0, 128, (400, 16))]
arguments = TrainingArguments(
    tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=100,
    save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=10,
)  # fmt: skip
Trainer(model, arguments, train_dataset=data).train()
