"""Inception-V3: factorised convolutions, and an auxiliary classifier while training."""

from types import SimpleNamespace

from torch import Tensor, nn
from torchvision.models import inception_v3

from profzoo.harness.tasks.classification import scale_convolutions
from profzoo.harness.tasks.classification import symmetric_adapt as adapt
from profzoo.harness.tasks.classification import symmetric_sample as sample

GROUPS = ("classification", "classic")
SOURCE = (
    "Szegedy et al. 2015, arXiv:1512.00567, table 1; parameters as torchvision counts them for 1000 classes, the "
    "auxiliary classifier included"
)
PARAMETERS = 27_161_264
REFERENCE = {"parameters": 27_145_970, "operations": 293_049_487_360, "difference": "its batch norm has no scale"}
SHAPE = {"classes": 1000, "auxiliary": True}
ORIGINAL = {"classes": 1001}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 299}, "inference": {"batch": 8, "size": 299}},
    "reference": {"train": {"batch": 20, "size": 346, **ORIGINAL}, "inference": {"batch": 20, "size": 346, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 346, **ORIGINAL}},
}
AUXILIARY_WEIGHT = 0.3  # As in the paper that introduced them, arXiv:1409.4842, section 5.


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights; without the auxiliary classifier it takes images from 75 pixels on."""
    return scale_convolutions(
        inception_v3(weights=None, init_weights=False, num_classes=shape.classes, aux_logits=shape.auxiliary)
    )


def loss(outputs: Tensor | tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy of the class scores, and of the auxiliary ones where there are any."""
    if isinstance(outputs, Tensor):
        return nn.functional.cross_entropy(outputs, target)
    scores, auxiliary = (nn.functional.cross_entropy(part, target) for part in outputs)
    return scores + AUXILIARY_WEIGHT * auxiliary
