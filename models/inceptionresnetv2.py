"""Inception-ResNet-V2: Inception blocks with scaled residuals."""

from types import SimpleNamespace

from timm.models.inception_resnet_v2 import InceptionResnetV2
from torch import nn

from profzoo.harness.tasks.classification import scale_convolutions
from profzoo.harness.tasks.classification import symmetric_adapt as adapt
from profzoo.harness.tasks.classification import symmetric_sample as sample

GROUPS = ("classification", "classic")
SOURCE = (
    "Szegedy et al. 2016, arXiv:1602.07261, figure 15; parameters as Keras Applications lists them for 1000 classes"
)
PARAMETERS = 55_873_736
DIFFERENCE = "Keras counts running means and variances of batch norm as well, and leaves out its scale, which timm has"
SHAPE = {"classes": 1000}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 8, "size": 299},
        "inference": {"batch": 8, "size": 299},
    },
    "reference": {
        "train": {"batch": 8, "size": 346, "classes": 1001},
        "inference": {"batch": 10, "size": 346, "classes": 1001},
    },
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights; it takes images from 75 pixels on."""
    return scale_convolutions(InceptionResnetV2(num_classes=shape.classes))
