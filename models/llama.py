"""Llama 3.2 1B: a decoder with turned keys, grouped queries, RMS norms and SwiGLU; `lora` trains adapters only.

Parameters of L layers, hidden h, q and k features of queries and keys, f of the feed-forward network, v words with tied
scores: L (2 h q + 2 h k + 3 h f + 2 h) + v h + h: 1,235,814,400 as published, 308,824,064 trimmed.
With `lora` = r, each linear layer of i inputs and o outputs trains r (i + o) more.
"""

from profzoo.harness.tasks.decoder import build, compiled, infer, optimizer, sample, stages
from profzoo.harness.tasks.tokens import cross_entropy as loss

GROUPS = ("language", "transformer", "modern")
SOURCE = "Grattafiori et al. 2024, arXiv:2407.21783, and Llama 3.2's model card; parameters derived in the file"
PARAMETERS = 308_824_064
SHAPE = {
    "vocabulary": 128_256, "hidden": 2048, "layers": 16, "heads": 32, "groups": 8, "width": 64, "turned": 64,
    "base": 500_000.0, "feed": 8192, "tied": True, "epsilon": 1e-5, "lora": 0,
}  # fmt: skip
# Trimmed in layers and words only; the reference is the whole model.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "tokens": 256, "layers": 4, "vocabulary": 32_000, "generated": 16},
        "inference": {"batch": 2, "tokens": 64, "layers": 4, "vocabulary": 32_000, "generated": 16},
    },
    "reference": {
        "train": {"batch": 2, "tokens": 2048, "generated": 64},
        "inference": {"batch": 8, "tokens": 1024, "generated": 64},
    },
}
REFERENCE = {
    "parameters": 1_235_814_400, "operations": 2_668_248_432_640,
    "source": "parameters as its weights have; operations derived",
    "difference": "rates of places are not stretched",
}  # fmt: skip
