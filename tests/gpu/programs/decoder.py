"""A decoder that generates tokens, with faults to plant: a cache that is copied, norms in pieces, a wait per token.

Without them, a token is bound by reading weights: keys and values go to a cache that is there from the beginning, norms
are one kernel each, and the host runs ahead.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from profzoo.harness.tasks import tokens
from profzoo.harness.tasks.tokens import note_token

SHAPE = {"vocabulary": 16_000, "hidden": 6144, "layers": 6, "heads": 48, "generated": 16, "tokens": 128,
         "copies": False, "pieces": False, "waits": False}  # fmt: skip
WORKLOADS = {"trimmed": {"inference": {"batch": 8}}}
# What the host does with each token that it has read, in rounds.
ROUNDS = 40


class Norm(nn.Module):
    """Layer norm by one kernel, or by one for each of its operators."""

    def __init__(self, width: int, pieces: bool) -> None:
        super().__init__()
        self.weight, self.pieces = _constant(width), pieces

    def forward(self, flow: Tensor) -> Tensor:
        if not self.pieces:
            return layer_norm(flow, self.weight.shape, self.weight)
        centred = flow - flow.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + 1e-5) * self.weight


class Layer(nn.Module):
    """Attention to the cache and two products, each after a norm; queries and keys have norms of their own."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        width, head = shape.hidden, shape.hidden // shape.heads
        self.heads, self.copies = shape.heads, shape.copies
        self.norms = nn.ModuleList(Norm(size, shape.pieces) for size in (width, width, head, head))
        sizes = ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))
        self.project, self.merge, self.widen, self.narrow = (_constant(*size) for size in sizes)
        self.cache: tuple[Tensor, ...] = ()

    def forward(self, flow: Tensor, start: int, room: int) -> Tensor:
        """What comes out for (batch, length, hidden); start: tokens in the cache, of `room`."""
        parts = linear(self.norms[0](flow), self.project).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        query, key = self.norms[2](query), self.norms[3](key)
        key, value = self._keep(key, value, start, room)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=not start)
        flow = flow + linear(mixed.transpose(1, 2).flatten(2), self.merge)
        return flow + linear(gelu(linear(self.norms[1](flow), self.widen)), self.narrow)

    def _keep(self, key: Tensor, value: Tensor, start: int, room: int) -> tuple[Tensor, Tensor]:
        if self.copies:
            old = self.cache if start else (key[:, :, :0], value[:, :, :0])
            self.cache = tuple(torch.cat(pair, dim=2) for pair in zip(old, (key, value), strict=True))
            return self.cache
        if not start:
            self.cache = tuple(key.new_empty((*key.shape[:2], room, key.shape[3])) for _ in range(2))
        end = start + key.shape[2]
        for kept, new in zip(self.cache, (key, value), strict=True):
            kept[:, :, start:end] = new
        return self.cache[0][:, :, :end], self.cache[1][:, :, :end]


class Decoder(nn.Module):
    """Layers between an embedding and its scores; weights are in bf16."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.waits, self.generated = shape.waits, shape.generated
        self.words = _constant(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.pieces)

    def read(self, text: Tensor, start: int, room: int) -> Tensor:
        """The likeliest next token, (batch, 1), after a text (batch, length) behind `start` tokens."""
        flow = nn.functional.embedding(text, self.words)
        for layer in self.layers:
            flow = layer(flow, start, room)
        return linear(self.norm(flow)[:, -1:], self.words).argmax(-1)

    def generate(self, prompt: Tensor) -> Tensor:
        """The next tokens, (batch, generated)."""
        room, found = prompt.shape[1] + self.generated, [prompt]
        while len(found) <= self.generated:
            start = 0 if len(found) == 1 else prompt.shape[1] + len(found) - 2
            found.append(self.read(found[-1], start, room))
            if self.waits:
                _look_for_end(int(found[-1][0].item()))
            note_token()
        # What stays from step to step could not be captured in a CUDA graph.
        for layer in self.layers:
            layer.cache = ()
        return torch.cat(found[1:], dim=1)


def _look_for_end(token: int) -> bool:
    """Whether a text ends with a token, as a program that streams its text finds out, in a few tenths of a ms."""
    words = [f"{token + place:x}" for place in range(ROUNDS) for _ in range(ROUNDS)]
    return "".join(words).endswith("stop")


def _constant(*size: int) -> nn.Parameter:
    """Weights of one value: what they are does not change how long anything takes, and drawing them would take long."""
    return nn.Parameter(torch.full(size, 1 / 64, dtype=torch.bfloat16), requires_grad=False)


def build(shape: SimpleNamespace) -> nn.Module:
    """The decoder."""
    return Decoder(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    """A prompt."""
    return tokens.random(shape.vocabulary, shape.tokens, generator), 0


def infer(network: Decoder, prompt: Tensor) -> Tensor:
    """The tokens after the prompt."""
    return network.generate(prompt)
