"""YOLOv8n: a detector whose scores and boxes of three sizes of maps are suppressed to as many boxes as there are.

Each place says how likely each class is, and by 16 scores an edge how far the edges of a box are. In training, the
places within a box whose own box and class suit it best learn it (Feng et al. 2021, arXiv:2108.07755).
"""

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, interpolate, max_pool2d, pad
from torchvision.ops import batched_nms

from profzoo.harness.tasks import images
from profzoo.harness.tasks.classification import scale_convolutions

GROUPS = ("detection", "modern")
SOURCE = "Jocher et al. 2023, the release of Ultralytics YOLOv8; parameters as its summary counts them"
PARAMETERS = 3_157_200
SHAPE = {"classes": 80, "width": 16, "depth": 1, "boxes": 8, "least": 0.0, "overlap": 0.7, "most": 300}
# The reference has the pixels of the release.
WORKLOADS = {
    "trimmed": {"train": {"batch": 4, "size": 320}, "inference": {"batch": 4, "size": 320}},
    "reference": {"train": {"batch": 32, "size": 640}, "inference": {"batch": 32, "size": 640}},
}
REFERENCE = {
    "parameters": 3_157_200, "operations": 8_700_000_000,
    "source": "parameters as its configuration lists them, operations as its documentation does",
    "difference": "8.7 is rounded",
}  # fmt: skip
# Scores of the distance of an edge; pixels of the places of the three sizes; places that learn a box; boxes before
# suppression; what no quotient divides by less than.
DISTANCES, STRIDES, LEARNING, CANDIDATES, LEAST = 16, (8, 16, 32), 10, 1000, 1e-7


def convolve(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    """A convolution, batch norm and SiLU."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03), nn.SiLU(inplace=True))


class Split(nn.Module):
    """Two convolutions again and again over half of the maps, all of whose outputs are kept."""

    def __init__(self, inputs: int, outputs: int, depth: int, added: bool) -> None:
        """added: whether what goes in is added to what comes out."""
        super().__init__()
        half, self.added = outputs // 2, added
        self.enter, self.leave = convolve(inputs, outputs), convolve((2 + depth) * half, outputs)
        self.layers = nn.ModuleList(
            nn.Sequential(convolve(half, half, 3), convolve(half, half, 3)) for _ in range(depth)
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same size."""
        kept = list(self.enter(maps).chunk(2, dim=1))
        for layer in self.layers:
            kept.append(kept[-1] + layer(kept[-1]) if self.added else layer(kept[-1]))
        return self.leave(torch.cat(kept, dim=1))


class Pooled(nn.Module):
    """The largest values nearby, in three steps."""

    def __init__(self, width: int) -> None:
        """width: maps in and out."""
        super().__init__()
        self.enter, self.leave = convolve(width, width // 2), convolve(2 * width, width)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same size."""
        kept = [self.enter(maps)]
        for _ in range(3):
            kept.append(max_pool2d(kept[-1], 5, 1, 2))
        return self.leave(torch.cat(kept, dim=1))


class YOLO(nn.Module):
    """From images (batch, 3, size, size) to what each place says of a class and a box."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """width: of the first maps; depth: of the first stage."""
        super().__init__()
        self.shape, width, depth = shape, shape.width, shape.depth
        small, middle, large = 4 * width, 8 * width, 16 * width
        self.first = nn.Sequential(
            convolve(3, width, 3, 2), convolve(width, 2 * width, 3, 2), Split(2 * width, 2 * width, depth, added=True),
            convolve(2 * width, small, 3, 2), Split(small, small, 2 * depth, added=True),
        )  # fmt: skip
        self.second = nn.Sequential(convolve(small, middle, 3, 2), Split(middle, middle, 2 * depth, added=True))
        self.third = nn.Sequential(convolve(middle, large, 3, 2), Split(large, large, depth, added=True), Pooled(large))
        self.up = nn.ModuleList(
            (Split(large + middle, middle, depth, added=False), Split(middle + small, small, depth, added=False))
        )
        self.shrink = nn.ModuleList((convolve(small, small, 3, 2), convolve(middle, middle, 3, 2)))
        self.down = nn.ModuleList(
            (Split(small + middle, middle, depth, added=False), Split(middle + large, large, depth, added=False))
        )
        classes, inner = max(small, min(shape.classes, 100)), max(16, small // 4, 4 * DISTANCES)
        self.boxes, self.kinds = (
            nn.ModuleList(
                nn.Sequential(convolve(size, wide, 3), convolve(wide, wide, 3), nn.Conv2d(wide, outputs, 1))
                for size in (small, middle, large)
            )
            for wide, outputs in ((inner, 4 * DISTANCES), (classes, shape.classes))
        )
        for last, stride in zip((head[-1] for head in list[Any](self.kinds)), STRIDES, strict=True):
            # A few objects an image.
            nn.init.constant_(last.bias, math.log(5 / shape.classes / (640 / stride) ** 2))
        # The distances whose mean is that of an edge, as the release keeps them.
        self.mean = nn.Conv2d(DISTANCES, 1, 1, bias=False).requires_grad_(False)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (batch, places, classes), distances of edges (batch, places, 4, 16), and places as `list_places`."""
        small = self.first(pixels)
        middle = self.second(small)
        large = self.third(middle)
        middle = self.up[0](torch.cat((interpolate(large, scale_factor=2.0), middle), dim=1))
        small = self.up[1](torch.cat((interpolate(middle, scale_factor=2.0), small), dim=1))
        middle = self.down[0](torch.cat((self.shrink[0](small), middle), dim=1))
        large = self.down[1](torch.cat((self.shrink[1](middle), large), dim=1))
        kinds, boxes = (
            torch.cat([head(maps).flatten(2) for head, maps in zip(heads, (small, middle, large), strict=True)], dim=2)
            for heads in (self.kinds, self.boxes)
        )
        boxes = boxes.transpose(1, 2).unflatten(-1, (4, DISTANCES))
        return kinds.transpose(1, 2), boxes, list_places(pixels.shape[-1], pixels.device)

    def detect(self, pixels: Tensor) -> list[Tensor]:
        """The boxes of each image, (found, 6): corners, score and class."""
        given, distances, places = self(pixels)
        scores, kinds = given.sigmoid().max(-1)
        means = self.mean(distances.permute(0, 3, 2, 1).softmax(1))[:, 0].transpose(1, 2)
        found = []
        for score, kind, corners in zip(scores, kinds, draw_boxes(means, places), strict=True):
            likely = (score > self.shape.least).nonzero().squeeze(1)
            likely = likely[score[likely].argsort(descending=True)[:CANDIDATES]]
            kept = likely[batched_nms(corners[likely].float(), score[likely].float(), kind[likely], self.shape.overlap)]
            kept = kept[: self.shape.most]
            found.append(torch.cat((corners[kept], score[kept, None], kind[kept, None]), dim=1))
        return found


def list_places(size: int, device: torch.device) -> Tensor:
    """The places of all maps, (places, 3): centre in pixels, and pixels from one to the next."""
    found = []
    for stride in STRIDES:
        along = stride * (torch.arange(size // stride, device=device) + 0.5)
        found.append(pad(torch.cartesian_prod(along, along).flip(1), (0, 1), value=stride))
    return torch.cat(found)


def draw_boxes(means: Tensor, places: Tensor) -> Tensor:
    """Corners (batch, places, 4) in pixels by the mean distances of the edges, of the same shape."""
    (left, right), (centres, strides) = means.chunk(2, dim=-1), places.split((2, 1), dim=-1)
    return torch.cat((centres - left * strides, centres + right * strides), dim=-1)


def infer(network: YOLO, pixels: Tensor) -> Tensor:
    """The boxes of each image, (batch, most, 6), with zeros after those that were found."""
    most = network.shape.most
    return torch.stack([pad(found, (0, 0, 0, most - len(found))) for found in network.detect(pixels)])


def compare(boxes: Tensor, others: Tensor) -> Tensor:
    """Overlap of boxes (..., 4), less by how far apart and how unlike in shape they are (CIoU, arXiv:1911.08287).

    Unlike torchvision's, it selects nothing by a mask, for which the host would wait.
    """
    (low, high), (near, far) = boxes.chunk(2, dim=-1), others.chunk(2, dim=-1)
    (width, height), (wide, tall) = (high - low).unbind(-1), (far - near).unbind(-1)
    across, along = (torch.minimum(high, far) - torch.maximum(low, near)).clamp(min=0).unbind(-1)
    shared = across * along
    overlap = shared / (width * height + wide * tall - shared + LEAST)
    apart = (low + high - near - far).square().sum(-1) / 4
    diagonal = (torch.maximum(high, far) - torch.minimum(low, near)).square().sum(-1)
    unlike = 4 / math.pi**2 * ((wide / (tall + LEAST)).atan() - (width / (height + LEAST)).atan()).square()
    weight = (unlike / (1 - overlap + unlike + LEAST)).detach()
    return overlap - apart / (diagonal + LEAST) - weight * unlike


def assign(scores: Tensor, corners: Tensor, places: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Which box each place learns, (batch, places), and how much of it, in [0, 1]; 0 for most places."""
    boxes, kinds = target[:, :, None].tensor_split([4], dim=-1)
    low, high = boxes.chunk(2, dim=-1)
    centres = places[:, :2]
    inside = ((centres > low) & (centres < high)).all(-1)
    overlap = compare(boxes, corners[:, None]).clamp(min=0) * inside
    likely = scores.float().sigmoid().transpose(1, 2).gather(1, kinds[..., 0].long().expand(-1, -1, len(places)))
    suits = likely.sqrt() * overlap**6
    none = torch.zeros_like(suits)
    chosen = none.scatter(2, suits.topk(LEARNING).indices, 1) * inside
    # Of several boxes, a place learns the one that it overlaps most.
    most = none.scatter(1, overlap.argmax(1, keepdim=True), 1)
    chosen = torch.where(chosen.sum(1, keepdim=True) > 1, most, chosen)
    suits = suits * chosen
    share = suits / suits.amax(2, keepdim=True).clamp(min=1e-9) * (overlap * chosen).amax(2, keepdim=True)
    return chosen.argmax(1), share.amax(1)


def loss(outputs: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
    """Of classes, of the boxes that places learn, and of their distances, by 0.5, 7.5 and 1.5 as in the release."""
    scores, distances, places = outputs
    means = distances.float().softmax(-1) @ torch.arange(float(DISTANCES), device=distances.device)
    corners = draw_boxes(means, places)
    learnt, share = assign(scores.detach(), corners.detach(), places, target)
    boxes, kinds = target.gather(1, learnt[..., None].expand(-1, -1, 5)).tensor_split([4], dim=-1)
    wanted = torch.zeros_like(scores).scatter(2, kinds.long(), share[..., None].to(scores.dtype))
    kind = binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
    overlap = (share * (1 - compare(boxes, corners))).sum()
    centres, strides = places.split((2, 1), dim=-1)
    far = torch.cat((centres - boxes[..., :2], boxes[..., 2:] - centres), dim=-1) / strides
    far = far.clamp(0, DISTANCES - 1.01)
    least = far.long()
    rest, raw = far - least, distances.float().movedim(-1, 1)
    edges = (
        cross_entropy(raw, least, reduction="none") * (1 - rest)
        + cross_entropy(raw, least + 1, reduction="none") * rest
    )
    edge = (share[..., None] * edges).sum() / 4
    return (0.5 * kind + 7.5 * overlap + 1.5 * edge) / share.sum().clamp(min=1)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights; sizes of images are multiples of 32."""
    network: Any = scale_convolutions(YOLO(shape))
    nn.init.constant_(network.mean.weight, 1).cumsum_(1).sub_(1)
    return network


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An image in [0, 1), and boxes (boxes, 5): corners in pixels, and class."""
    # Up to nearly the whole image, as the coarsest maps learn large boxes alone.
    extent = 0.05 + 0.9 * torch.rand(shape.boxes, 2, generator=generator)
    corners = torch.rand(shape.boxes, 2, generator=generator) * (1 - extent)
    kinds = torch.randint(shape.classes, (shape.boxes, 1), generator=generator)
    boxes = shape.size * torch.cat((corners, corners + extent), dim=1)
    return images.random(shape, generator), torch.cat((boxes, kinds), dim=1)
