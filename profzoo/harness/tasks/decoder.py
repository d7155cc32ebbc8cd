"""Decoders of text, whose parts a shape chooses: what mixes tokens, experts, adapters; with caches of fixed size.

Shape: `vocabulary`, `hidden`, `layers`; what `mixers` says of each mixer; and below, what OPTIONS has.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from profzoo.harness.interface import Stages
from profzoo.harness.tasks import mixers, tokens
from profzoo.harness.tasks.mixers import Cache, Places, linear, norm
from profzoo.harness.tasks.tokens import note_token

MIXERS = {
    "attention": mixers.Attention, "latent": mixers.Latent, "delta": mixers.GatedDelta, "space": mixers.StateSpace,
}  # fmt: skip
# mixer: of all layers; every: after how many layers one has attention instead. turned: width of a key that turns with
# its place, by rates from 1 to 1 / base. tied: scores by the words' embeddings. feed: width within a feed-forward
# network, 0 for none. experts: of a layer, each of width expert; a token goes to `chosen` ones, and to all `shared`
# ones; whole: whether the weights of those it chose add up to 1; reach: how many times its mean share of tokens an
# expert takes. dense: first layers without experts. epsilon: of RMS norms. lora: rank of adapters, with which nothing
# else is trained; 0 for none. Rates are not stretched to long texts, as those of llama and deepseekv2 are.
OPTIONS: Mapping[str, Any] = {
    "mixer": "attention", "every": 0, "normed": False, "gated": False, "turned": 0, "base": 10_000.0, "tied": False,
    "feed": 0, "experts": 0, "expert": 0, "chosen": 1, "shared": 0, "shared_gate": False, "whole": False,
    "reach": 2.0, "dense": 0, "epsilon": mixers.EPSILON, "lora": 0, "generated": 1, "chunk": 64,
}  # fmt: skip
# What an expert takes at least, so that a few new tokens may all choose the same.
LEAST = 16


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv:2002.05202): a linear layer times SiLU of another, and one back."""

    def __init__(self, hidden: int, inner: int) -> None:
        """Width outside and inside."""
        super().__init__()
        self.gate, self.widen, self.narrow = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)

    def forward(self, flow: Tensor) -> Tensor:
        """From (..., hidden) to the same."""
        return self.narrow(silu(self.gate(flow)) * self.widen(flow))


class Experts(nn.Module):
    """Feed-forward networks of which each token takes a few, weighed by their scores, and some that all take.

    Shapes are fixed, and the host waits for nothing: each expert has the same number of rows, in which its tokens come
    first; what exceeds them passes by. No loss balances them, as in DeepSeek-V3 and unlike in the other releases.
    """

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes as OPTIONS says."""
        super().__init__()
        self.chosen, self.reach, self.whole = shape.chosen, shape.reach, shape.whole
        self.route = linear(shape.hidden, shape.experts)
        self.inner = nn.Parameter(0.02 * torch.randn(shape.experts, shape.hidden, 2 * shape.expert))
        self.outer = nn.Parameter(0.02 * torch.randn(shape.experts, shape.expert, shape.hidden))
        self.shared = FeedForward(shape.hidden, shape.shared * shape.expert) if shape.shared else None
        self.share = linear(shape.hidden, 1) if shape.shared_gate else None

    def forward(self, flow: Tensor) -> Tensor:
        """From (batch, length, hidden) to the same."""
        rows = flow.flatten(0, 1)
        weights, choice = self.route(rows).softmax(-1).topk(self.chosen)
        if self.whole:
            weights = weights / weights.sum(-1, keepdim=True)
        slots, count = self._slots(choice.flatten(), len(rows))
        # One more row than the experts have takes what exceeds them, and is zero afterwards.
        given = rows.new_zeros(len(self.inner) * count + 1, rows.shape[1])
        given = given.index_copy(0, slots, rows.repeat_interleave(self.chosen, dim=0))
        gate, wide = torch.bmm(given[:-1].unflatten(0, (-1, count)), self.inner).chunk(2, dim=-1)
        done = nn.functional.pad(torch.bmm(silu(gate) * wide, self.outer).flatten(0, 1), (0, 0, 0, 1))
        mixed = (done.index_select(0, slots).unflatten(0, (-1, self.chosen)) * weights[..., None]).sum(1)
        mixed = mixed.view_as(flow)
        if self.shared is None:
            return mixed
        common = self.shared(flow)
        return mixed + (common if self.share is None else self.share(flow).sigmoid() * common)

    def _slots(self, choice: Tensor, rows: int) -> tuple[Tensor, int]:
        """A row for each choice, in the order of experts, and how many rows an expert has."""
        experts = len(self.inner)
        count = min(rows, max(LEAST, -int(-self.reach * rows * self.chosen // experts)))
        ordered, order = choice.sort(stable=True)
        first = torch.searchsorted(ordered, torch.arange(experts, device=choice.device))
        turn = torch.arange(len(choice), device=choice.device) - first[ordered]
        slots = torch.where(turn < count, ordered * count + turn, experts * count)
        return torch.empty_like(slots).index_copy(0, order, slots), count


class Adapted(nn.Linear):
    """A frozen linear layer with a trained addition of low rank (LoRA, Hu et al. 2021, arXiv:2106.09685)."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        """The addition is zero at first, and counts twice; the weight is the layer's own."""
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight = layer.weight
        self.down, self.up = linear(layer.in_features, rank), linear(rank, layer.out_features)
        nn.init.normal_(self.down.weight, std=1 / rank)
        nn.init.zeros_(self.up.weight)

    def forward(self, flow: Tensor) -> Tensor:
        """What both give."""
        return super().forward(flow) + 2 * self.up(self.down(flow))


class Block(nn.Module):
    """A mixer and a feed-forward network, each after a norm and added to what went in."""

    def __init__(self, shape: SimpleNamespace, layer: int) -> None:
        """layer: its number, from 0."""
        super().__init__()
        attends = shape.every and (layer + 1) % shape.every == 0
        self.mixer = MIXERS["attention" if attends else shape.mixer](shape)
        routed = shape.experts and layer >= shape.dense
        self.feed = Experts(shape) if routed else FeedForward(shape.hidden, shape.feed) if shape.feed else None
        self.norms = nn.ModuleList(norm(shape.hidden, shape.epsilon) for _ in range(2 if self.feed else 1))

    def forward(self, flow: Tensor, places: Places, cache: Cache | None) -> Tensor:
        """What comes out for (batch, length, hidden)."""
        flow = flow + self.mixer(self.norms[0](flow), places, cache)
        return flow + self.feed(self.norms[1](flow)) if self.feed else flow


class Decoder(nn.Module):
    """From tokens (batch, length) to scores of each next one, (batch, length, vocabulary)."""

    rates: Tensor

    def __init__(self, shape: SimpleNamespace) -> None:
        """Sizes, and generated: tokens made in inference."""
        super().__init__()
        self.generated = shape.generated
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.norm, self.head = norm(shape.hidden, shape.epsilon), linear(shape.hidden, shape.vocabulary)
        if shape.tied:
            self.head.weight = self.words.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        powers = torch.arange(0, shape.turned, 2) / max(shape.turned, 1)
        self.register_buffer("rates", shape.base**-powers, persistent=False)

    def forward(self, text: Tensor) -> Tensor:
        """Scores of every position."""
        return self.head(self.read(self.words(text)))

    def read(self, flow: Tensor, caches: Sequence[Cache] | None = None, start: int = 0) -> Tensor:
        """Hidden states of vectors (batch, length, hidden) from a place on; the caches then have them, too."""
        return self.norm(self.run(flow, self.blocks, caches, start))

    def run(
        self, flow: Tensor, blocks: Iterable[nn.Module], caches: Sequence[Cache] | None = None, start: int = 0
    ) -> Tensor:
        """What comes out of some of the blocks."""
        at = torch.arange(start, start + flow.shape[1], device=flow.device)
        angles, kind = at[:, None] * self.rates, mixers.cache_type(flow)
        # In the type of keys, so that no layer casts them again.
        places = Places(at, angles.cos().to(kind), angles.sin().to(kind))
        for number, block in enumerate(blocks):
            flow = block(flow, places, caches[number] if caches else None)
        return flow

    def caches(self, batch: int, length: int) -> list[Cache]:
        """Empty caches for texts of so many tokens."""
        blocks: list[Any] = list(self.blocks)
        return [block.mixer.cache(batch, length) for block in blocks]

    def generate(self, prompt: Tensor, count: int) -> Tensor:
        """The likeliest next tokens, (batch, count), one at a time."""
        return self.continue_from(self.words(prompt), count)

    def continue_from(self, flow: Tensor, count: int) -> Tensor:
        """The same after vectors (batch, length, hidden)."""
        batch, length = flow.shape[:2]
        caches, found = self.caches(batch, length + count), []
        for place in range(length, length + count):
            flow = self.read(flow, caches, place - flow.shape[1])
            found.append(self.head(flow[:, -1:]).argmax(-1))
            note_token()
            flow = self.words(found[-1])
        return torch.cat(found, dim=1)


def build(shape: SimpleNamespace) -> Decoder:
    """Build the decoder with random weights."""
    shape = SimpleNamespace(**{**OPTIONS, **vars(shape)})
    network = Decoder(shape)
    if shape.lora:
        network.requires_grad_(False)
        for block in network.blocks:
            for parent in list(block.modules()):
                for name, layer in list(parent.named_children()):
                    if isinstance(layer, nn.Linear):
                        setattr(parent, name, Adapted(layer, shape.lora))
    return network


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A text (tokens,), and the same a token later."""
    text = tokens.random(shape.vocabulary, shape.tokens + 1, generator)
    return text[:-1], text[1:]


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with weight decay, of what is trained."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)


def infer(network: Decoder, prompt: Tensor) -> Tensor:
    """The tokens generated after the prompt, (batch, generated)."""
    return network.generate(prompt, network.generated)


def compiled(network: Decoder) -> Sequence[nn.Module]:
    """The blocks, which generating calls without the network around them."""
    return tuple(network.blocks)


def stages(network: Decoder) -> Stages:
    """Embeddings, blocks, and scores."""
    return Stages(
        first=network.words,
        run=lambda flow, text, blocks: network.run(flow, blocks),
        last=lambda flow: network.head(network.norm(flow)),
        blocks=network.blocks,
        before=[network.words],
        after=[network.norm, network.head],
    )
