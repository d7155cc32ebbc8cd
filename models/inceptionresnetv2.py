"""Inception-ResNet-V2: Inception blocks with scaled residuals."""

from types import SimpleNamespace

from timm.models.inception_resnet_v2 import InceptionResnetV2
from torch import Tensor, nn
from torchvision.models.inception import InceptionAux

from models.inceptionv3 import loss
from models.inceptionv4 import DROPOUT
from profzoo.harness.tasks.classification import scale_convolutions
from profzoo.harness.tasks.classification import symmetric_adapt as adapt
from profzoo.harness.tasks.classification import symmetric_sample as sample

GROUPS = ("classification", "classic")
SOURCE = (
    "Szegedy et al. 2016, arXiv:1602.07261, figure 15; parameters as Keras Applications lists them for 1000 classes"
)
PARAMETERS = 55_873_736
DIFFERENCE = "Keras counts running means and variances of batch norm as well, and leaves out its scale, which timm has"
REFERENCE = {"parameters": 59_182_258, "operations": 334_534_103_040, "difference": "its batch norm has no scale"}
SHAPE = {"classes": 1000, "auxiliary": False}
ORIGINAL = {"classes": 1001, "auxiliary": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 299}, "inference": {"batch": 8, "size": 299}},
    "reference": {"train": {"batch": 8, "size": 346, **ORIGINAL}, "inference": {"batch": 10, "size": 346, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 346, **ORIGINAL}},
}


class WithAuxiliary(InceptionResnetV2):
    """The network with an auxiliary classifier of the maps after its twenty middle blocks."""

    def __init__(self, classes: int) -> None:
        """Classes of an image."""
        super().__init__(num_classes=classes, drop_rate=DROPOUT)
        self.auxiliary = InceptionAux(1088, classes)

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Class scores; in training also the auxiliary ones."""
        stages, early = list(self.children()), image
        for stage in stages[:11]:
            early = stage(early)
        late = early
        for stage in stages[11:15]:
            late = stage(late)
        scores = self.forward_head(late)
        return (scores, self.auxiliary(early)) if self.training else scores


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights; without an auxiliary classifier it takes images from 75 pixels on."""
    classes = shape.classes
    network = WithAuxiliary(classes) if shape.auxiliary else InceptionResnetV2(num_classes=classes, drop_rate=DROPOUT)
    return scale_convolutions(network)
