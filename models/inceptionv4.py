"""Inception-V4: a deeper stem, and Inception and reduction blocks without residuals."""

from types import SimpleNamespace

from timm.models.inception_v4 import InceptionV4
from torch import Tensor, nn
from torchvision.models.inception import InceptionAux

from models.inceptionv3 import loss
from profzoo.harness.tasks.classification import scale_convolutions
from profzoo.harness.tasks.classification import symmetric_adapt as adapt
from profzoo.harness.tasks.classification import symmetric_sample as sample

GROUPS = ("classification", "classic")
SOURCE = "Szegedy et al. 2016, arXiv:1602.07261, figure 9; parameters as timm's results list them (42.68 M)"
PARAMETERS = 42_680_000
DIFFERENCE = "42.68 M is rounded"
REFERENCE = {"parameters": 46_009_106, "operations": 312_412_487_680, "difference": "its batch norm has no scale"}
SHAPE = {"classes": 1000, "auxiliary": False}
ORIGINAL = {"classes": 1001, "auxiliary": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 299}, "inference": {"batch": 8, "size": 299}},
    "reference": {"train": {"batch": 10, "size": 346, **ORIGINAL}, "inference": {"batch": 10, "size": 346, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 346, **ORIGINAL}},
}
DROPOUT = 0.2


class WithAuxiliary(InceptionV4):
    """The network with an auxiliary classifier of the maps after its seven middle blocks."""

    def __init__(self, classes: int) -> None:
        """Classes of an image."""
        super().__init__(num_classes=classes, drop_rate=DROPOUT)
        self.auxiliary = InceptionAux(1024, classes)

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Class scores; in training also the auxiliary ones."""
        early = self.features[:18](image)
        scores = self.forward_head(self.features[18:](early))
        return (scores, self.auxiliary(early)) if self.training else scores


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights; without an auxiliary classifier it takes images from 75 pixels on."""
    classes = shape.classes
    network = WithAuxiliary(classes) if shape.auxiliary else InceptionV4(num_classes=classes, drop_rate=DROPOUT)
    return scale_convolutions(network)
