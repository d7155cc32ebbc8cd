"""Qwen3-Next 80B, scaled to one GPU: three layers of the gated delta rule to one of gated attention, and experts.

Parameters of L layers, hidden h, e experts of width x, v words: L (3 h x (e + 1) + h e + 3 h) + 2 v h + h; a layer of
attention with n heads and g groups of width w has 3 h n w + 2 h g w + 2 w more, and one of the delta rule, with k
features of keys, p of values and n heads of width o, h (2 k + 2 p + 2 n) + 4 (2 k + p) + 2 n + o + p h: 79,674,391,296
as published (80 B), 236,828,736 trimmed.
"""

from profzoo.harness.tasks.decoder import build, compiled, infer, optimizer, sample, stages
from profzoo.harness.tasks.tokens import cross_entropy as loss

GROUPS = ("language", "transformer", "experts", "recurrent", "modern")
SOURCE = "Qwen team 2025, Qwen3-Next-80B-A3B's model card and configuration; parameters derived in the file"
PARAMETERS = 236_828_736
SHAPE = {
    "vocabulary": 151_936, "hidden": 2048, "layers": 48, "mixer": "delta", "every": 4, "heads": 16, "groups": 2,
    "width": 256, "turned": 64, "base": 10_000_000.0, "normed": True, "gated": True, "experts": 512, "expert": 512,
    "chosen": 10, "whole": True, "shared": 1, "shared_gate": True, "sources": 16, "targets": 32, "inner": 128,
    "outer": 128,
}  # fmt: skip
# The reference has four layers of the published size and 64 experts; the trimmed one is half as wide, with 16.
WORKLOADS = {
    "trimmed": {
        "train": {
            "batch": 2, "tokens": 256, "generated": 16, "layers": 4,
            "vocabulary": 32_000, "hidden": 1024, "experts": 16,
        },
        "inference": {
            "batch": 2, "tokens": 64, "generated": 16, "layers": 4,
            "vocabulary": 32_000, "hidden": 1024, "experts": 16,
        },
    },
    "reference": {
        "train": {"batch": 2, "tokens": 2048, "layers": 4, "experts": 64, "generated": 64},
        "inference": {"batch": 8, "tokens": 1024, "layers": 4, "experts": 64, "generated": 64},
    },
}  # fmt: skip
REFERENCE = {
    "parameters": 79_674_391_296, "operations": 7_678_260_674_560,
    "source": "parameters as its weights have without the layer that drafts; operations derived",
    "difference": "each expert has room for twice its share of tokens, and no loss balances them",
}  # fmt: skip
