"""DeepSeekMoE 16B, scaled to one GPU: a decoder whose tokens each take six of 64 fine experts, and two shared ones.

Parameters of L layers, the first without experts, hidden h, e experts of width x, s shared, f of the first layer, v
words: L (4 h^2 + 2 h) + 3 h f + (L - 1) (3 h x (e + s) + e h) + 2 v h + h: 16,375,728,128 as published, 215,966,720
trimmed.
"""

from profzoo.harness.tasks.decoder import build, compiled, infer, optimizer, sample, stages
from profzoo.harness.tasks.tokens import cross_entropy as loss

GROUPS = ("language", "transformer", "experts", "modern")
SOURCE = "Dai et al. 2024, arXiv:2401.06066, section 5.1 and its release; parameters derived in the file"
PARAMETERS = 215_966_720
SHAPE = {
    "vocabulary": 102_400, "hidden": 2048, "layers": 28, "heads": 16, "groups": 16, "width": 128, "turned": 128,
    "feed": 10_944, "experts": 64, "expert": 1408, "chosen": 6, "shared": 2, "dense": 1,
}  # fmt: skip
# The reference has four layers of the published size; the trimmed one is half as wide, with a quarter of the experts.
WORKLOADS = {
    "trimmed": {
        "train": {
            "batch": 2, "tokens": 256, "generated": 16, "layers": 4,
            "vocabulary": 32_000, "hidden": 1024, "heads": 8, "groups": 8, "feed": 5472, "experts": 16, "expert": 704,
        },
        "inference": {
            "batch": 2, "tokens": 64, "generated": 16, "layers": 4,
            "vocabulary": 32_000, "hidden": 1024, "heads": 8, "groups": 8, "feed": 5472, "experts": 16, "expert": 704,
        },
    },
    "reference": {
        "train": {"batch": 2, "tokens": 2048, "layers": 4, "generated": 64},
        "inference": {"batch": 8, "tokens": 1024, "layers": 4, "generated": 64},
    },
}  # fmt: skip
REFERENCE = {
    "parameters": 16_375_728_128, "operations": 5_603_858_579_456,
    "source": "parameters as its weights have; operations derived",
    "difference": "each expert has room for twice its share of tokens, and no loss balances them",
}  # fmt: skip
