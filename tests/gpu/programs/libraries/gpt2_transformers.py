"""GPT-2 of transformers."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

SHAPE = {"layers": 12, "heads": 12, "width": 768, "words": 50257, "length": 256}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}


def build(shape: SimpleNamespace) -> nn.Module:
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=shape.layers,
            n_head=shape.heads,
            n_embd=shape.width,
            vocab_size=shape.words,
            n_positions=shape.length,
            use_cache=False,
        )
    )


def sample(shape: SimpleNamespace, generator: torch.Generator) -> dict[str, Tensor]:
    words = torch.randint(shape.words, (shape.length,), generator=generator)
    return {"input_ids": words, "labels": words}
