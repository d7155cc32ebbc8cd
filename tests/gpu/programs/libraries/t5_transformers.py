"""T5-small of transformers."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

SHAPE = {"layers": 6, "heads": 8, "width": 512, "words": 32128, "length": 128}
WORKLOADS = {"trimmed": {"train": {"batch": 8}}}


def build(shape: SimpleNamespace) -> nn.Module:
    return T5ForConditionalGeneration(
        T5Config(
            num_layers=shape.layers,
            num_heads=shape.heads,
            d_model=shape.width,
            d_kv=shape.width // shape.heads,
            d_ff=4 * shape.width,
            vocab_size=shape.words,
            decoder_start_token_id=0,
            use_cache=False,
        )
    )


def sample(shape: SimpleNamespace, generator: torch.Generator) -> dict[str, Tensor]:
    draw = (torch.randint(1, shape.words, (shape.length,), generator=generator) for _ in range(2))
    return dict(zip(("input_ids", "labels"), draw, strict=True))
