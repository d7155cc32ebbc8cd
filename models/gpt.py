"""GPT-2 small: a Transformer decoder; inference reads a prompt and generates tokens from cached keys and values."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from profzoo.harness.interface import Stages
from profzoo.harness.tasks import tokens
from profzoo.harness.tasks.tokens import cross_entropy as loss
from profzoo.harness.tasks.tokens import note_token

GROUPS = ("language", "transformer", "classic")
SOURCE = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 2; parameters of its release"
PARAMETERS = 124_439_808
SHAPE = {"vocabulary": 50_257, "positions": 1024, "hidden": 768, "layers": 12, "heads": 12, "dropout": 0.1}
# Of no AI Benchmark; the reference is the paper's context, and a prompt of half of it.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "tokens": 256, "generated": 16},
        "inference": {"batch": 2, "tokens": 64, "generated": 16},
    },
    "reference": {
        "train": {"batch": 8, "tokens": 1024, "generated": 64},
        "inference": {"batch": 8, "tokens": 512, "generated": 64},
    },
}
Cache = tuple[Tensor, Tensor]


class Block(nn.Module):
    """Causal self-attention and two linear layers, each after a layer norm and added to what went in."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        """Sizes; heads divide hidden."""
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.project, self.merge = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, flow: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        """What comes out for (batch, length, hidden), and the keys and values so far, (batch, heads, length, ...)."""
        parts = self.project(self.norms[0](flow)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        if cache:
            key, value = torch.cat((cache[0], key), dim=2), torch.cat((cache[1], value), dim=2)
        share = self.dropout.p if self.training else 0.0
        # A single new token may look at everything before it.
        mixed = scaled_dot_product_attention(query, key, value, dropout_p=share, is_causal=cache is None)
        flow = flow + self.dropout(self.merge(mixed.transpose(1, 2).flatten(2)))
        wide = nn.functional.gelu(self.widen(self.norms[1](flow)), approximate="tanh")
        return flow + self.dropout(self.narrow(wide)), (key, value)


class GPT(nn.Module):
    """From tokens (batch, length) to scores of each next one, (batch, length, vocabulary)."""

    def __init__(
        self, vocabulary: int, positions: int, hidden: int, layers: int, heads: int, dropout: float, generated: int
    ) -> None:
        """Sizes; positions: the longest text; generated: tokens made in inference."""
        super().__init__()
        self.generated = generated
        self.words, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(hidden, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Scores of every position."""
        return self.scores(*self.read(text, None)[:1])

    def read(self, text: Tensor, caches: Sequence[Cache] | None) -> tuple[Tensor, list[Cache]]:
        """Hidden states of the tokens that come after those in the caches, and the caches with them."""
        flow, after = self.embed(text, caches[0][0].shape[2] if caches else 0), []
        for index, block in enumerate(self.blocks):
            flow, cache = block(flow, caches[index] if caches else None)
            after.append(cache)
        return self.norm(flow), after

    def embed(self, text: Tensor, start: int = 0) -> Tensor:
        """Vectors of tokens (batch, length) from a place on."""
        places = torch.arange(start, start + text.shape[1], device=text.device)
        return self.dropout(self.words(text) + self.places(places))

    def scores(self, flow: Tensor) -> Tensor:
        """Scores of each word by its embedding."""
        return nn.functional.linear(flow, self.words.weight)

    def generate(self, prompt: Tensor, count: int) -> Tensor:
        """The likeliest next tokens, (batch, count), one at a time."""
        flow, caches = self.read(prompt, None)
        found = [self.scores(flow[:, -1:]).argmax(-1)]
        note_token()
        while len(found) < count:
            flow, caches = self.read(found[-1], caches)
            found.append(self.scores(flow).argmax(-1))
            note_token()
        return torch.cat(found, dim=1)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights; it generates as many tokens as the shape says."""
    # A longer prompt than the paper's has positions of its own.
    positions = max(shape.positions, shape.tokens + shape.generated)
    sizes = (shape.vocabulary, positions, shape.hidden, shape.layers, shape.heads)
    return GPT(*sizes, shape.dropout, shape.generated)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A text (tokens,), and the same a token later."""
    text = tokens.random(shape.vocabulary, shape.tokens + 1, generator)
    return text[:-1], text[1:]


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with weight decay."""
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1)


def infer(network: GPT, prompt: Tensor) -> Tensor:
    """The tokens generated after the prompt, (batch, generated)."""
    return network.generate(prompt, network.generated)


def compiled(network: GPT) -> Sequence[nn.Module]:
    """The blocks, which generating calls without the network around them."""
    return tuple(network.blocks)


def split(network: GPT) -> dict[str, str]:
    """The two linear layers after the attention of each block."""
    ways = (("widen", "columns"), ("narrow", "rows"))
    return {f"blocks.{block}.{name}": how for block in range(len(network.blocks)) for name, how in ways}


def stages(network: GPT) -> Stages:
    """Embeddings, blocks, and scores by the embeddings."""

    def run(flow: Tensor, text: Tensor, blocks: Sequence[nn.Module]) -> Tensor:
        for block in blocks:
            flow, _ = block(flow, None)
        return flow

    return Stages(
        first=network.embed,
        run=run,
        last=lambda flow: network.scores(network.norm(flow)),
        blocks=network.blocks,
        before=[network.words, network.places],
        after=[network.norm, network.words],
    )
