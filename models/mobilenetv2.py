"""MobileNet-V2: inverted residual blocks of depthwise separable convolutions."""

from types import SimpleNamespace

from torch import nn
from torchvision.models import mobilenet_v2

from profzoo.harness.tasks.classification import adapt, sample, scale_convolutions

GROUPS = ("classification", "classic")
SOURCE = "Sandler et al. 2018, arXiv:1801.04381, table 2; parameters as torchvision counts them for 1000 classes"
PARAMETERS = 3_504_872
REFERENCE = {"parameters": 3_506_153, "operations": 30_077_555_200}
SHAPE = {"classes": 1000}
ORIGINAL = {"classes": 1001}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 224}, "inference": {"batch": 8, "size": 224}},
    "reference": {"train": {"batch": 50, "size": 224, **ORIGINAL}, "inference": {"batch": 50, "size": 224, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 224, **ORIGINAL}},
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return scale_convolutions(mobilenet_v2(weights=None, num_classes=shape.classes))
