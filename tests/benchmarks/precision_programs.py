"""Small programs of many kinds, written to see what tf32 and bf16 gain; the setting `program` names one of PROGRAMS."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.planted.networks.convolutional import ResidualNetwork
from tests.planted.networks.transformer import Attention, Block, two_layers

SHAPE = {"program": "", "width": 768, "length": 512, "layers": 4, "heads": 12, "words": 32768, "maps": 64, "size": 64,
         "vertices": 100_000, "classes": 64}  # fmt: skip
# Programs in inference are of the workload `reference`.
WORKLOADS = {"trimmed": {"train": {"batch": 16}}, "reference": {"inference": {"batch": 16}}}
TINY = {"batch": 2, "width": 24, "length": 10, "layers": 2, "heads": 3, "words": 96, "maps": 8, "size": 16,
        "vertices": 40, "classes": 6}  # fmt: skip
Shape = SimpleNamespace


class WrittenAttention(Attention):
    """Attention written out, with a mask and dropout."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return F.dropout(scores.masked_fill(later, -torch.inf).softmax(-1), 0.1, self.training) @ value


class SeparateAttention(nn.Module):
    """Attention whose queries, keys and values come from layers of their own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.merge = (nn.Linear(width, width) for _ in range(4))

    def forward(self, flow: Tensor, mask: Tensor | None = None) -> Tensor:
        parts = [layer(flow).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in
                 (self.query, self.key, self.value)]  # fmt: skip
        return self.merge(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class Spare(nn.Module):
    """A block that keeps nothing for the backward pass."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, flow: Tensor) -> Tensor:
        return checkpoint(self.block, flow, use_reentrant=False, preserve_rng_state=False)


class RootNorm(nn.Module):
    """RMS norm, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, flow: Tensor) -> Tensor:
        return flow * torch.rsqrt(flow.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Gated(nn.Module):
    """A gated network for each token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, 3 * width),
            nn.Linear(3 * width, width),
        )

    def forward(self, flow: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(flow)) * self.up(flow))


class Residual(nn.Module):
    """Layers whose result is added to what went in."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, flow: Tensor) -> Tensor:
        return flow + self.layers(flow)


class Turned(nn.Module):
    """A layer for the second to last dimension."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, flow: Tensor) -> Tensor:
        return self.layer(flow.transpose(1, 2)).transpose(1, 2)


class Applied(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, flow: Tensor) -> Tensor:
        return self.function(flow)


class Recurrent(nn.Module):
    """An LSTM, of which only the outputs are handed on."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, flow: Tensor) -> Tensor:
        return self.cells(flow)[0]


class WrittenLoss(nn.Module):
    """Scores of words, and their cross-entropy written out, against the words themselves."""

    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.scores = nn.Linear(width, words, bias=False)

    def forward(self, flow: Tensor) -> Tensor:
        scores = self.scores(flow)
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        return -torch.log((powers / powers.sum(-1, keepdim=True))[..., 0] + 1e-12).mean()


class Convolved(nn.Module):
    """A sum over the neighbours of each vertex of a random graph, behind a linear layer; or their weighted mean."""

    edges: Tensor

    def __init__(self, width: int, vertices: int, attended: bool) -> None:
        super().__init__()
        self.layer, self.score, self.attended = nn.Linear(width, width), nn.Linear(width, 1), attended
        self.register_buffer(
            "edges", torch.randint(vertices, (2, 8 * vertices), generator=torch.Generator("cpu"), device="cpu")
        )

    def forward(self, flow: Tensor) -> Tensor:
        flow = self.layer(flow)
        source, target = self.edges
        sent = flow[source]
        if not self.attended:
            return F.relu(torch.zeros_like(flow).index_add(0, target, sent))
        weight = torch.exp(F.leaky_relu(self.score(flow)[source] - self.score(flow)[target]).clamp(max=8.0))
        of_all = torch.zeros(len(flow), 1, device=flow.device).index_add(0, target, weight.float())
        return torch.zeros_like(flow).scatter_add(0, target[:, None].expand_as(sent), sent * (weight / of_all[target]))


class Experts(nn.Module):
    """All experts for every token, mixed by a softmax."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.gate, self.inner = nn.Linear(width, count), nn.Parameter(torch.randn(count, width, width) / width**0.5)

    def forward(self, flow: Tensor) -> Tensor:
        made = F.gelu(torch.einsum("blw,ewv->blev", flow, self.inner))
        return (made * self.gate(flow).softmax(-1)[..., None]).sum(2)


class Crossed(nn.Module):
    """Products of all pairs of vectors, as in recommenders."""

    def forward(self, flow: Tensor) -> Tensor:
        pairs = torch.bmm(flow, flow.transpose(1, 2))
        return torch.cat((flow.flatten(1), pairs.flatten(1)), 1)


class Contrasted(nn.Module):
    """Similarities of two views of a batch, and what they lose against the right pairs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.views = nn.ModuleList(two_layers(width) for _ in range(2))

    def forward(self, flow: Tensor) -> Tensor:
        one, other = (F.normalize(view(flow).flatten(0, 1), dim=-1) for view in self.views)
        similar = one @ other.T / 0.07
        return (similar.logsumexp(-1) - similar.diagonal()).mean()


class Skipping(nn.Module):
    """A U-Net of two levels."""

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.into, self.down = _conv(3, maps), _conv(maps, 2 * maps, 2)
        self.inner, self.out = _conv(2 * maps, maps), _conv(2 * maps, 3, norm=False)

    def forward(self, flow: Tensor) -> Tensor:
        flow = self.into(flow)
        small = self.inner(self.down(flow))
        return self.out(torch.cat((flow, F.interpolate(small, scale_factor=2.0, mode="bilinear")), 1))


def _conv(inward: int, outward: int, stride: int = 1, groups: int = 1, norm: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(inward, outward, 3, stride, 1, groups=groups)]
    return nn.Sequential(*layers, *([nn.BatchNorm2d(outward)] if norm else []), nn.ReLU())


def _waves(flow: Tensor) -> Tensor:
    for _ in range(6):
        flow = torch.sin(flow) * 0.9 + flow.clamp(-1, 1) * 0.1
    return flow


def _energies(flow: Tensor) -> Tensor:
    for _ in range(4):
        flow = torch.log1p(torch.exp(-flow.abs())) + flow.pow(2) * 0.1
    return flow


def _blocks(shape: Shape, attention: Callable[[int, int], nn.Module] = Attention, **given: object) -> list[nn.Module]:
    feed = given.get("feed", two_layers)
    norm = given.get("norm", nn.LayerNorm)
    return [
        Block(shape.width, attention(shape.width, shape.heads), feed(shape.width), norm)  # type: ignore[operator, arg-type]
        for _ in range(shape.layers)
    ]


def _repeat(count: int, make: Callable[[], nn.Module]) -> list[nn.Module]:
    return [make() for _ in range(count)]


@dataclass(frozen=True)
class Program:
    """A program of some layers.

    inputs: `flow`, `words`, `image`, `graph` or `vector`. target: what its scores are compared with, `classes` of each
    place, one `class` or the `words`; or the `image`; empty where the layers make the loss.
    """

    layers: Callable[[Shape], list[nn.Module]]
    inputs: str = "flow"
    target: str = "classes"
    phase: str = "train"
    batch: int = 16


def _vgg(s: Shape) -> list[nn.Module]:
    return [_conv(3, s.maps, norm=False), *_repeat(2 * s.layers, lambda: _conv(s.maps, s.maps, norm=False))]


def _depthwise(s: Shape) -> list[nn.Module]:
    return [_conv(3, s.maps), *_repeat(2 * s.layers, lambda: Residual(
        _conv(s.maps, s.maps, groups=s.maps), nn.Conv2d(s.maps, 4 * s.maps, 1), nn.GELU(),
        nn.Conv2d(4 * s.maps, s.maps, 1)))]  # fmt: skip


def _normed(s: Shape) -> list[nn.Module]:
    return _repeat(2 * s.layers, lambda: Residual(nn.LayerNorm(s.width), two_layers(s.width), nn.Dropout(0.1)))


def _plain(s: Shape) -> list[nn.Module]:
    return [layer for _ in range(2 * s.layers) for layer in (nn.Linear(s.width, s.width), nn.ReLU())]


def _diffusing(s: Shape) -> list[nn.Module]:
    return [nn.Conv2d(3, s.maps, 3, padding=1), *_repeat(2 * s.layers, lambda: Residual(
        nn.GroupNorm(4, s.maps), nn.SiLU(), nn.Conv2d(s.maps, s.maps, 3, padding=1)))]  # fmt: skip


def _audio(s: Shape) -> list[nn.Module]:
    return _repeat(s.layers, lambda: Residual(
        Turned(nn.Conv1d(s.width, s.width, 7, padding=3, groups=s.heads)), nn.LayerNorm(s.width), nn.GELU(),
        nn.Linear(s.width, s.width)))  # fmt: skip


def _mixing(s: Shape) -> list[nn.Module]:
    return _repeat(s.layers, lambda: nn.Sequential(
        Residual(nn.LayerNorm(s.width), Turned(two_layers(s.length))),
        Residual(nn.LayerNorm(s.width), two_layers(s.width))))  # fmt: skip


def _volumes(s: Shape) -> list[nn.Module]:
    opened = Applied(lambda image: image[:, :, None].expand(-1, -1, 8, -1, -1))
    convolve = [layer for _ in range(s.layers) for layer in (nn.Conv3d(s.maps, s.maps, 3, padding=1), nn.ReLU())]
    return [opened, nn.Conv3d(3, s.maps, 1), *convolve, nn.MaxPool3d(2), Applied(lambda flow: flow.mean(2))]


def _through(function: Callable[[Tensor], Tensor]) -> Callable[[Shape], list[nn.Module]]:
    return lambda s: [nn.Linear(s.width, s.width), Applied(function), nn.Linear(s.width, s.width)]


def _graph(attended: bool) -> Callable[[Shape], list[nn.Module]]:
    return lambda s: _repeat(2, lambda: Convolved(min(s.width, 256), s.vertices, attended))


def _crossed(s: Shape) -> list[nn.Module]:
    fields = min(16, s.length)
    return [
        Applied(lambda flow: flow[:, :fields]),
        Crossed(),
        nn.Linear(fields * (s.width + fields), s.width),
        nn.ReLU(),
    ]


PROGRAMS: dict[str, Program] = {
    "written_attention": Program(lambda s: _blocks(s, WrittenAttention)),
    "fused_attention": Program(_blocks),
    "separate_attention": Program(lambda s: _blocks(s, SeparateAttention)),
    "checkpointed": Program(lambda s: [*map(Spare, _blocks(s))]),
    "gated_root_norms": Program(lambda s: _blocks(s, feed=Gated, norm=RootNorm)),
    "written_loss": Program(lambda s: [*_blocks(s)[:1], WrittenLoss(s.width, s.words)], "words", ""),
    "vocabulary": Program(lambda s: [*_blocks(s)[:1], nn.Linear(s.width, s.words, bias=False)], "words", "words"),
    "graph_sums": Program(_graph(False), "graph", batch=1),
    "graph_attention": Program(_graph(True), "graph", batch=1),
    "normed_layers": Program(_normed),
    "plain_layers": Program(_plain),
    "small_batch": Program(lambda s: [layer for _ in range(12) for layer in _plain(s)[:2]], "vector", "class", batch=8),
    "large_weights": Program(
        lambda s: [nn.Linear(s.width, 32 * s.width), nn.ReLU(), nn.Linear(32 * s.width, s.width)], "vector", "class"
    ),
    "convolutions": Program(_vgg, "image", "class"),
    "residual_convolutions": Program(lambda s: [ResidualNetwork(s.maps, [2, 2], s.width)], "image", "class", batch=64),
    "depthwise": Program(_depthwise, "image", "class"),
    "diffusion": Program(_diffusing, "image", "class"),
    "upsampling": Program(lambda s: [Skipping(2 * s.maps)], "image", "image", batch=32),
    "volumes": Program(_volumes, "image", "class"),
    "recurrent": Program(lambda s: [Recurrent(s.width, 2)], "words", batch=32),
    "waves": Program(_through(_waves)),
    "energies": Program(_through(_energies)),
    "experts": Program(lambda s: [Experts(s.width, 8)]),
    "recommender": Program(_crossed, "words", "class", batch=512),
    "audio": Program(_audio),
    "mixer": Program(_mixing),
    "contrastive": Program(lambda s: [Contrasted(s.width)], target="", batch=8),
    "attention_inference": Program(_blocks, phase="inference"),
    "convolution_inference": Program(_depthwise, "image", "class", phase="inference", batch=64),
    "written_inference": Program(lambda s: _blocks(s, WrittenAttention, norm=RootNorm), phase="inference"),
}


def build(shape: Shape) -> nn.Module:
    program = PROGRAMS[shape.program]
    layers = program.layers(shape)
    if program.inputs == "words":
        layers.insert(0, nn.Embedding(shape.words, shape.width))
    if program.inputs == "graph":
        layers = [Applied(lambda flow: flow[0]), nn.Linear(shape.width, min(shape.width, 256)), *layers]
        return nn.Sequential(*layers, nn.Linear(min(shape.width, 256), shape.classes))
    if program.target.startswith("class"):
        images = program.inputs == "image" and not isinstance(layers[0], ResidualNetwork)
        pooled = [Applied(lambda flow: flow.mean((2, 3)))] if images else []
        layers += [*pooled, nn.Linear(shape.maps if images else shape.width, shape.classes)]
    return nn.Sequential(*layers)


def sample(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    program = PROGRAMS[shape.program]
    sizes = {"flow": (shape.length, shape.width), "words": (shape.length,), "image": (3, shape.size, shape.size),
             "graph": (shape.vertices, shape.width), "vector": (shape.width,)}  # fmt: skip
    size = sizes[program.inputs]
    words = torch.randint(shape.words, size[:1], generator=generator)
    inputs = words if program.inputs == "words" else torch.randn(size, generator=generator)
    classes = torch.randint(shape.classes, size[:1] if program.target == "classes" else (), generator=generator)
    return inputs, {"words": words, "image": inputs}.get(program.target, classes)


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    if not outputs.ndim:
        return outputs
    if target.is_floating_point():
        return F.mse_loss(outputs, target)
    return F.cross_entropy(outputs.flatten(0, -2), target.flatten())
