"""Small programs that compute the same again, or much with zeros, each with a twin that does not."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

from profzoo.fusion.calls import Flow, TracedStep, read_step
from profzoo.fusion.chains import Chain, find_chains
from profzoo.fusion.patterns import FINDERS
from profzoo.harness import ranges
from profzoo.range_names import DOMAIN
from profzoo.tools.torch.trace import make_trace
from tests import owned

BATCH, PROMPT, WIDTH, WORDS, ROUNDS, LAYERS = 2, 16, 32, 40, 4, 2
VERTICES, NEIGHBOURS = 2048, 3


class Block(nn.Module):
    """Causal attention and a layer, of new rows with the keys and values of those before."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, held: Tensor | None) -> tuple[Tensor, Tensor]:
        """From (batch, new, width) to the same, with keys and values (batch, all, 2 x width)."""
        query, both = self.qkv(x).split((WIDTH, 2 * WIDTH), -1)
        both = both if held is None else torch.cat((held, both), 1)
        key, value = both.chunk(2, -1)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=held is None)
        return x + self.out(y), both


class Generator(nn.Module):
    """Generates words with or without what the rounds before have computed."""

    def __init__(self, cached: bool) -> None:
        super().__init__()
        self.words, self.scores, self.cached = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS), cached
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, text: Tensor) -> Tensor:
        held: list[Tensor | None] = [None] * LAYERS
        new = text
        for _ in range(ROUNDS):
            flow = self.words(new if self.cached else text)
            for place, block in enumerate(self.blocks):
                flow, kept = block(flow, held[place])
                held[place] = kept if self.cached else None
            new = self.scores(flow[:, -1]).argmax(-1, keepdim=True)
            text = torch.cat((text, new), 1)
        return text


class Growing(nn.Module):
    """Reads parts of a sequence that are longer each time, of which nothing is chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, text: Tensor) -> Tensor:
        x = text[..., None].float().expand(*text.shape, WIDTH)
        return torch.stack([self.layer(x[:, : PROMPT - ROUNDS + end]).sum(1) for end in range(ROUNDS)]).sum(0)


class Neighbours(nn.Module):
    """Sums over a graph's neighbours: by a product with its adjacency, or by edges."""

    def __init__(self, dense: bool, vertices: int = VERTICES, trained: bool = False) -> None:
        """trained: whether the matrix is a weight."""
        super().__init__()
        self.into, self.source = torch.randint(vertices, (2, NEIGHBOURS * vertices))
        self.layer, self.dense = nn.Linear(8, 8), dense
        matrix = torch.zeros(vertices, vertices).index_put((self.into, self.source), torch.ones(()), accumulate=True)
        self.matrix = nn.Parameter(matrix, requires_grad=trained)
        self.vertices = vertices

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        y = self.matrix @ x if self.dense else torch.zeros_like(x).index_add(0, self.into, x[self.source])
        return self.layer(y)


class Checkpointed(nn.Module):
    """Layers whose activations are computed again in the backward pass, or kept."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS))
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return x


def trace_step(network: nn.Module, given: Tensor, training: bool = True) -> tuple[TracedStep, list[Chain]]:
    """Return a step of a network under torch.profiler on the CPU, and its chains."""
    ranges.mark_modules(network, ranges.torch_range)

    def step() -> None:
        with record_function(f"{DOMAIN}:step"), torch.set_grad_enabled(training):
            with record_function(f"{DOMAIN}:forward"):
                y = network(given)
            if training:
                with record_function(f"{DOMAIN}:backward"):
                    y.sum().backward()

    found = read_step(make_trace(owned.of_steps([step, step])))
    return found, find_chains(Flow(found.calls), FINDERS)
