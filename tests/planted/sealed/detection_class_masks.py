"""A detector whose boxes are selected by boolean masks, one class of one image after the other."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tests.planted.networks.convolutional import ResidualNetwork
from tests.planted.networks.samples import images as sample

SHAPE = {"fault": True, "size": 384, "width": 96, "depths": [2, 2, 2], "classes": 10, "most": 100}
WORKLOADS = {"trimmed": {"inference": {"batch": 8}}}
TINY = {"batch": 2, "size": 32, "width": 8, "depths": [1, 1], "classes": 3, "most": 5}


class Detector(ResidualNetwork):
    """At most so many boxes of each class, with scores that are lower the more a likelier box covers the same."""

    def __init__(self, fault: bool, width: int, depths: list[int], classes: int, most: int) -> None:
        super().__init__(width, depths)
        self.fault, self.most = fault, most
        self.head = nn.Conv2d(self.width, 4 + classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Corners and scores, (batch, classes, most, 5)."""
        found = self.head(self.features(images)).flatten(2).transpose(1, 2).float()
        places, scores = found[..., :4].sigmoid(), found[..., 4:].transpose(1, 2)
        corners = torch.cat((places[..., :2], places[..., :2] + 0.3 * places[..., 2:]), -1)
        if self.fault:
            one_by_one = zip(corners, scores, strict=True)
            return torch.stack([torch.stack([self.select(boxes, row) for row in rows]) for boxes, rows in one_by_one])
        likely = torch.where(scores > 0, scores, 0.0)
        top, index = likely.topk(self.most)
        boxes = corners[:, None].expand(-1, scores.shape[1], -1, -1).gather(2, index[..., None].expand(-1, -1, -1, 4))
        return lower(torch.where(top[..., None] > 0, boxes, 0.0), top)

    def select(self, corners: Tensor, scores: Tensor) -> Tensor:
        """Boxes of one class of one image."""
        likely = scores > 0
        boxes, top = corners[likely], scores[likely]
        order = top.argsort(descending=True)[: self.most]
        room = self.most - len(order)
        return lower(pad(boxes[order], (0, 0, 0, room)), pad(top[order], (0, room)))


def lower(boxes: Tensor, scores: Tensor) -> Tensor:
    """Boxes with their scores, times what the likelier box that covers most of each leaves of it."""
    size = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
    begin = torch.maximum(boxes[..., :, None, :2], boxes[..., None, :, :2])
    common = (torch.minimum(boxes[..., :, None, 2:], boxes[..., None, :, 2:]) - begin).clamp(min=0).prod(-1)
    cover = common / (size[..., :, None] + size[..., None, :] - common).clamp(min=1e-9)
    return torch.cat((boxes, (scores * (1 - cover.triu(1).amax(-2)))[..., None]), -1)


def build(shape: SimpleNamespace) -> nn.Module:
    return Detector(shape.fault, shape.width, shape.depths, shape.classes, shape.most)
