"""Mamba-2 130M: a state-space model; each layer mixes tokens by a recurrence that is computed in chunks.

Parameters of L layers, hidden h, n heads with p = 2 h features, a state of s, v words with tied scores:
L (h (2 p + 2 s + n) + 5 (p + 2 s) + 3 n + p + p h + h) + v h + h, which makes the release's 128,989,632.
"""

from profzoo.harness.tasks.decoder import build, compiled, infer, optimizer, sample, stages
from profzoo.harness.tasks.tokens import cross_entropy as loss

GROUPS = ("language", "recurrent", "modern")
SOURCE = "Dao and Gu 2024, arXiv:2405.21060, section 9.2; parameters derived in the file, as of its release"
PARAMETERS = 128_989_632
SHAPE = {
    "vocabulary": 50_288, "hidden": 768, "layers": 24, "mixer": "space", "targets": 24, "outer": 64, "inner": 128,
    "chunk": 256, "tied": True, "epsilon": 1e-5,
}  # fmt: skip
# The reference is made for a GPU of 80 GB.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "tokens": 256, "generated": 16},
        "inference": {"batch": 2, "tokens": 64, "generated": 16},
    },
    "reference": {
        "train": {"batch": 8, "tokens": 1024, "generated": 64},
        "inference": {"batch": 8, "tokens": 1024, "generated": 64},
    },
}
REFERENCE = {
    "parameters": 128_989_632, "operations": 304_229_646_336,
    "source": "parameters as its weights have; operations derived",
}  # fmt: skip
