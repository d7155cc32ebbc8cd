"""DeepSeek-V2-Lite, scaled to one GPU: latent attention, which caches one narrow vector per token, and experts.

Parameters as deepseekmoe's, but for attention of n heads with keys of a and t features, without and with places, values
of w, and a vector of r: h n (a + t) + h (r + t) + r + r n (a + w) + n w h instead of 4 h^2: 15,706,484,224 as
published, 216,230,912 trimmed.
"""

from profzoo.harness.tasks.decoder import build, compiled, infer, optimizer, sample, stages
from profzoo.harness.tasks.tokens import cross_entropy as loss

GROUPS = ("language", "transformer", "experts", "modern")
SOURCE = "DeepSeek-AI 2024, arXiv:2405.04434, section 2 and appendix B; parameters derived in the file"
PARAMETERS = 216_230_912
SHAPE = {
    "vocabulary": 102_400, "hidden": 2048, "layers": 27, "mixer": "latent", "heads": 16, "plain": 128, "turned": 64,
    "width": 128, "rank": 512, "feed": 10_944, "experts": 64, "expert": 1408, "chosen": 6, "shared": 2, "dense": 1,
}  # fmt: skip
# As of deepseekmoe.
WORKLOADS = {
    "trimmed": {
        "train": {
            "batch": 2, "tokens": 256, "generated": 16, "layers": 4,
            "vocabulary": 32_000, "hidden": 1024, "heads": 8, "feed": 5472, "experts": 16, "expert": 704,
        },
        "inference": {
            "batch": 2, "tokens": 64, "generated": 16, "layers": 4,
            "vocabulary": 32_000, "hidden": 1024, "heads": 8, "feed": 5472, "experts": 16, "expert": 704,
        },
    },
    "reference": {
        "train": {"batch": 2, "tokens": 2048, "layers": 4, "generated": 64},
        "inference": {"batch": 8, "tokens": 1024, "layers": 4, "generated": 64},
    },
}  # fmt: skip
REFERENCE = {
    "parameters": 15_706_484_224, "operations": 5_310_190_190_592,
    "source": "parameters as its weights have; operations derived",
    "difference": "each expert has room for twice its share of tokens, and no loss balances them; "
    "rates of places are not stretched",
}  # fmt: skip
