"""Inception-V4: a deeper stem, and Inception and reduction blocks without residuals."""

from types import SimpleNamespace

from timm.models.inception_v4 import InceptionV4
from torch import nn

from profzoo.harness.tasks.classification import scale_convolutions
from profzoo.harness.tasks.classification import symmetric_adapt as adapt
from profzoo.harness.tasks.classification import symmetric_sample as sample

GROUPS = ("classification", "classic")
SOURCE = "Szegedy et al. 2016, arXiv:1602.07261, figure 9; parameters as timm's results list them (42.68 M)"
PARAMETERS = 42_680_000
DIFFERENCE = "42.68 M is rounded"
SHAPE = {"classes": 1000}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 8, "size": 299},
        "inference": {"batch": 8, "size": 299},
    },
    "reference": {
        "train": {"batch": 10, "size": 346, "classes": 1001},
        "inference": {"batch": 10, "size": 346, "classes": 1001},
    },
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights; it takes images from 75 pixels on."""
    return scale_convolutions(InceptionV4(num_classes=shape.classes))
