"""What mixes the tokens of a decoder's layer: attention with grouped or latent keys, the delta rule, a state space.

A mixer maps (batch, length, hidden) to the same. It writes what later tokens need into its cache, tensors of fixed
shapes that `cache` makes. A text is read into empty caches at once, and then continued token by token.
"""

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pad, scaled_dot_product_attention, silu, softplus

EPSILON = 1e-6
# Tokens that the convolution before a recurrence sees.
REACH = 4
Cache = tuple[Tensor, ...]


class Places(NamedTuple):
    """Places of tokens in their text, (length,), and the cosines and sines by which keys turn, (length, width / 2)."""

    at: Tensor
    cosines: Tensor
    sines: Tensor

    def turn(self, flow: Tensor) -> Tensor:
        """Turn the leading features of (batch, heads, length, width) (RoPE, Su et al. 2021, arXiv:2104.09864)."""
        cosines, sines = self.cosines.to(flow.dtype), self.sines.to(flow.dtype)
        one, other, rest = flow.split((half := cosines.shape[-1], half, flow.shape[-1] - 2 * half), dim=-1)
        return torch.cat((one * cosines - other * sines, other * cosines + one * sines, rest), dim=-1)

    def seen(self, length: int) -> Tensor:
        """Which of so many places a token may look at, (tokens, length)."""
        return torch.arange(length, device=self.at.device) <= self.at[:, None]


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer without biases, as everywhere in these decoders."""
    return nn.Linear(inputs, outputs, bias=False)


def norm(width: int, epsilon: float = EPSILON) -> nn.RMSNorm:
    """An RMS norm (Zhang and Sennrich 2019, arXiv:1910.07467)."""
    return nn.RMSNorm(width, eps=epsilon)


def cache_type(given: Tensor) -> torch.dtype:
    """Type of keys and values: that of autocast, if it is on, else that of the given weight or values."""
    kind = given.device.type
    casting = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if casting else given.dtype


def exact(device: str) -> AbstractContextManager[object]:
    """Arithmetic in the types of the operands; torch's meta device knows no other."""
    return nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


class Attention(nn.Module):
    """Causal attention whose queries share keys and values in groups (Ainslie et al. 2023, arXiv:2305.13245)."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """heads, groups, width of a head; normed: queries and keys have norms; gated: a gate for each output."""
        super().__init__()
        self.heads, self.groups, self.width, self.gated = shape.heads, shape.groups, shape.width, shape.gated
        self.query = linear(shape.hidden, shape.heads * shape.width * (2 if shape.gated else 1))
        self.key, self.value = (linear(shape.hidden, shape.groups * shape.width) for _ in range(2))
        self.merge = linear(shape.heads * shape.width, shape.hidden)
        self.norms = nn.ModuleList(norm(shape.width) if shape.normed else nn.Identity() for _ in range(2))

    def cache(self, batch: int, length: int) -> Cache:
        """Keys and values, (batch, groups, length, width)."""
        weight = self.key.weight
        size, kind = (batch, self.groups, length, self.width), cache_type(weight)
        return weight.new_zeros(size, dtype=kind), weight.new_zeros(size, dtype=kind)

    def forward(self, flow: Tensor, places: Places, cache: Cache | None) -> Tensor:
        """What comes out for (batch, length, hidden)."""
        query, key, value = (
            layer(flow).unflatten(-1, (heads, -1)).transpose(1, 2)
            for layer, heads in ((self.query, self.heads), (self.key, self.groups), (self.value, self.groups))
        )
        query, gate = query.chunk(2, dim=-1) if self.gated else (query, None)
        query, key = places.turn(self.norms[0](query)), places.turn(self.norms[1](key))
        if cache:
            for kept, new in zip(cache, (key, value), strict=True):
                kept.index_copy_(2, places.at, new.to(kept.dtype))
        mixed = _attend(query, key, value, places, cache)
        if gate is not None:
            mixed = mixed * gate.sigmoid()
        return self.merge(mixed.transpose(1, 2).flatten(2))


class Latent(nn.Module):
    """Causal attention whose keys and values come from a narrow vector per token, which alone is cached.

    DeepSeek-AI 2024, arXiv:2405.04434, section 2.1. A single new token is compared with the cached vectors themselves:
    its query is mapped to their space, and the mixed vector back from it, so that no keys and values are made.
    """

    def __init__(self, shape: SimpleNamespace) -> None:
        """heads; plain, turned: width of a key without and with its place; width: of a value; rank: of the vector."""
        super().__init__()
        self.heads, self.plain, self.turned, self.rank = shape.heads, shape.plain, shape.turned, shape.rank
        self.query = linear(shape.hidden, shape.heads * (shape.plain + shape.turned))
        self.down, self.norm = linear(shape.hidden, shape.rank + shape.turned), norm(shape.rank)
        self.up = linear(shape.rank, shape.heads * (shape.plain + shape.width))
        self.merge = linear(shape.heads * shape.width, shape.hidden)

    def cache(self, batch: int, length: int) -> Cache:
        """Vectors and turned keys, (batch, 1, length, rank + turned)."""
        weight = self.down.weight
        return (weight.new_zeros(batch, 1, length, self.rank + self.turned, dtype=cache_type(weight)),)

    def forward(self, flow: Tensor, places: Places, cache: Cache | None) -> Tensor:
        """What comes out for (batch, length, hidden)."""
        query = self.query(flow).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        plain, turned = query.split((self.plain, self.turned), dim=-1)
        turned = places.turn(turned)
        latent, shared = self.down(flow)[:, None].split((self.rank, self.turned), dim=-1)
        latent, shared = self.norm(latent), places.turn(shared)
        if cache:
            new = torch.cat((latent, shared.to(latent.dtype)), dim=-1)
            cache[0].index_copy_(2, places.at, new.to(cache[0].dtype))
        if cache and flow.shape[1] == 1:
            mixed = self._continue(plain, turned, places, cache[0])
        else:
            key, value = (
                self.up(latent[:, 0]).unflatten(-1, (self.heads, -1)).transpose(1, 2).tensor_split([self.plain], dim=-1)
            )
            key = torch.cat((key, shared.expand(-1, self.heads, -1, -1).to(key.dtype)), dim=-1)
            query = torch.cat((plain, turned), dim=-1)
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.merge(mixed.transpose(1, 2).flatten(2))

    def _continue(self, plain: Tensor, turned: Tensor, places: Places, kept: Tensor) -> Tensor:
        """Mixed values (batch, heads, 1, width) of a single token from cached vectors."""
        into, out = self.up.weight.view(self.heads, -1, self.rank).tensor_split([self.plain], dim=1)
        query = torch.cat((plain @ into, turned), dim=-1)
        keys = kept.expand(-1, self.heads, -1, -1)
        scale, seen = (self.plain + self.turned) ** -0.5, places.seen(kept.shape[2])
        mixed = scaled_dot_product_attention(query, keys, keys[..., : self.rank], attn_mask=seen, scale=scale)
        return mixed @ out.transpose(1, 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, places: Places, cache: Cache | None) -> Tensor:
    """Attention of queries (batch, heads, length, width), whose keys and values have fewer heads."""
    single = cache is not None and query.shape[2] == 1
    if cache is not None and single:
        key, value = cache
    seen = places.seen(key.shape[2]) if single else None
    # Repeated, because fused kernels for fp32 take as many keys as queries.
    key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], dim=1) for one in (key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=seen, is_causal=not single)


class Convolution(nn.Module):
    """A causal convolution of each channel of (batch, length, channels) over a few tokens, and SiLU."""

    def __init__(self, channels: int, bias: bool) -> None:
        """Channels, and whether each has a bias."""
        super().__init__()
        self.layer = nn.Conv1d(channels, channels, REACH, groups=channels, bias=bias)

    def cache(self, batch: int) -> Tensor:
        """The last inputs, (batch, channels, tokens before)."""
        weight = self.layer.weight
        return weight.new_zeros(batch, len(weight), REACH - 1, dtype=cache_type(weight))

    def forward(self, flow: Tensor, cache: Tensor | None) -> Tensor:
        """The outputs; the cache then has the last inputs."""
        flow = flow.transpose(1, 2)
        if cache is None:
            flow = pad(flow, (REACH - 1, 0))
        else:
            flow = torch.cat((cache.to(flow.dtype), flow), dim=2)
            cache.copy_(flow[..., -(REACH - 1) :])
        return silu(self.layer(flow)).transpose(1, 2)


def scan(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, strength: Tensor | None, state: Tensor | None, chunk: int
) -> Tensor:
    """A linear recurrence over tokens: S = exp(decay) S + key u, output = query S, in chunks of tokens.

    u is the value, or by the gated delta rule, strength (value - key exp(decay) S), what is new about it. Within a
    chunk, all u are the solution of one triangular system, and outputs are products of matrices; only S goes from chunk
    to chunk (Yang et al. 2024, arXiv:2412.06464, section 3.3; without strength Dao and Gu 2024, arXiv:2405.21060,
    section 6). Computed in fp32 at least.

    query, key: (batch, heads or 1, length, inner); value: (batch, heads, length, outer); decay, strength: (batch,
    heads, length); state: S of before, (batch, heads, inner, outer), replaced by that of after; zero if None.
    """
    length, kind = value.shape[2], torch.promote_types(value.dtype, torch.float32)
    chunk = min(chunk, length)
    more = -length % chunk
    given = [one if one is None else one.to(kind) for one in (query, key, value, decay[..., None])]
    query, key, value, decay = (pad(one, (0, 0, 0, more)).unflatten(2, (-1, chunk)) for one in given)
    decay = decay.cumsum(3)
    far = decay - decay.transpose(3, 4)
    below = torch.ones(chunk, chunk, dtype=torch.bool, device=value.device).tril()
    # From each token to those after it; masked before exp, which would overflow above the diagonal.
    fade = far.masked_fill(~below, -torch.inf).exp()
    with exact(value.device.type):
        told = None
        if strength is not None:
            strength = pad(strength.to(kind), (0, more)).unflatten(2, (-1, chunk))[..., None]
            lower = strength * (key @ key.transpose(3, 4)) * fade
            right = torch.cat((strength * value, strength * decay.exp() * key), dim=-1)
            solved = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
            value, told = solved.tensor_split([value.shape[-1]], dim=-1)
        within, asked = (query @ key.transpose(3, 4)) * fade, query * decay.exp()
        last = decay[..., -1:, :]
        given_on, kept = key * (last - decay).exp(), last.exp()
        whole, outputs = _start(state, key, value), []
        for index in range(value.shape[2]):
            new = value[:, :, index]
            if told is not None:
                new = new - told[:, :, index] @ whole
            outputs.append(within[:, :, index] @ new + asked[:, :, index] @ whole)
            whole = kept[:, :, index] * whole + given_on[:, :, index].transpose(2, 3) @ new
    if state is not None:
        state.copy_(whole)
    return torch.cat(outputs, dim=2)[:, :, :length]


def _start(state: Tensor | None, key: Tensor, value: Tensor) -> Tensor:
    if state is not None:
        return state.to(value.dtype)
    return value.new_zeros(*value.shape[:2], key.shape[-1], value.shape[-1])


class Recurrence(nn.Module):
    """What the two recurrences share: how fast each head forgets, and caches of the last inputs and of the state."""

    def __init__(self, shape: SimpleNamespace, heads: int, channels: int, bias: bool) -> None:
        """heads: of values; channels, bias: of the convolution; inner, outer: sizes of a head's state."""
        super().__init__()
        self.state, self.chunk, self.convolution = (
            (heads, shape.inner, shape.outer),
            shape.chunk,
            Convolution(channels, bias),
        )
        self.rate = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        # The inverse of softplus of steps between 0.001 and 0.1.
        steps = torch.empty(heads).uniform_(-6.9, -2.3).exp()
        self.shift = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))

    def cache(self, batch: int, length: int) -> Cache:
        """Inputs of the convolution, and the state (batch, heads, inner, outer) in the weights' type."""
        return self.convolution.cache(batch), self.rate.new_zeros(batch, *self.state)

    def steps(self, raw: Tensor) -> Tensor:
        """Positive steps (batch, heads, length) of (batch, length, heads)."""
        return softplus(raw.to(self.shift.dtype) + self.shift).transpose(1, 2)


class GatedDelta(Recurrence):
    """The gated delta rule (Yang et al. 2024, arXiv:2412.06464), as Qwen3-Next has it."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """sources: heads of queries and keys, of width inner; targets: heads of values, of width outer."""
        self.keys, self.values = shape.sources * shape.inner, shape.targets * shape.outer
        super().__init__(shape, shape.targets, 2 * self.keys + self.values, bias=False)
        self.sources = shape.sources
        self.project, self.weigh = (
            linear(shape.hidden, 2 * (self.keys + self.values)),
            linear(shape.hidden, 2 * shape.targets),
        )
        self.norm, self.merge = norm(shape.outer), linear(self.values, shape.hidden)

    def forward(self, flow: Tensor, places: Places, cache: Cache | None) -> Tensor:
        """What comes out for (batch, length, hidden)."""
        raw, gate = self.project(flow).split((2 * self.keys + self.values, self.values), dim=-1)
        strength, decay = self.weigh(flow).chunk(2, dim=-1)
        raw, heads = self.convolution(raw, cache[0] if cache else None), self.state[0]
        query, key, value = (
            one.unflatten(-1, (count, -1)).transpose(1, 2)
            for one, count in zip(
                raw.split((self.keys, self.keys, self.values), dim=-1), (self.sources, self.sources, heads), strict=True
            )
        )
        query, key = (
            normalize(one, dim=-1, eps=EPSILON).repeat_interleave(heads // self.sources, dim=1) for one in (query, key)
        )
        fading = -self.rate.exp()[:, None] * self.steps(decay)
        mixed = scan(
            query * query.shape[-1] ** -0.5, key, value, fading, strength.sigmoid().transpose(1, 2),
            cache[1] if cache else None, self.chunk,
        )  # fmt: skip
        mixed = self.norm(mixed.transpose(1, 2)) * silu(gate.unflatten(-1, (heads, -1)))
        return self.merge(mixed.flatten(2))


class StateSpace(Recurrence):
    """Mamba-2: a state space with one decay per head (Dao and Gu 2024, arXiv:2405.21060)."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """targets: heads; outer: width of a head; inner: size of the state, which all heads read and write alike."""
        self.values, self.inner = shape.targets * shape.outer, shape.inner
        super().__init__(shape, shape.targets, self.values + 2 * shape.inner, bias=True)
        self.project = linear(shape.hidden, 2 * self.values + 2 * shape.inner + shape.targets)
        self.skip = nn.Parameter(torch.ones(shape.targets))
        self.norm, self.merge = norm(self.values, shape.epsilon), linear(self.values, shape.hidden)

    def forward(self, flow: Tensor, places: Places, cache: Cache | None) -> Tensor:
        """What comes out for (batch, length, hidden)."""
        parts = (self.values, self.values + 2 * self.inner, self.state[0])
        gate, raw, step = self.project(flow).split(parts, dim=-1)
        raw = self.convolution(raw, cache[0] if cache else None)
        value, key, query = raw.split((self.values, self.inner, self.inner), dim=-1)
        value, steps = value.unflatten(-1, (self.state[0], -1)).transpose(1, 2), self.steps(step)
        mixed = scan(
            query[:, None], key[:, None], value * steps[..., None], -self.rate.exp()[:, None] * steps, None,
            cache[1] if cache else None, self.chunk,
        )  # fmt: skip
        mixed = (mixed + self.skip[:, None, None] * value).transpose(1, 2).flatten(2)
        return self.merge(self.norm(mixed * silu(gate)))
