"""Hugging Face `generate`: a small GPT-2 writes sixteen words to each of three prompts, with a key-value cache."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=2)).to(device).eval()
for _ in range(200):
    prompts = torch.randint(1, 128, (3, 8), device=device)
    model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=16, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
