"""Networks with one planted error each, and rewritten ones without an error: what verdicts on numbers are tested with.

`network` names the network, and `changed` what is different in it. An error whose name ends in `_measured` is not there
in double precision, as errors of a graph or of compiled code are not there either.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SHAPE = {"network": "transformer", "changed": "none", "dropout": 0.1}
WORKLOADS = {"trimmed": {"train": {"batch": 4}, "inference": {"batch": 4}}}
WIDTH, HEADS, LAYERS, LENGTH, WORDS, CLASSES = 64, 4, 8, 24, 200, 10
# Errors by network and phase. Tolerances were chosen by those of the first half alone.
DEVELOPMENT = (
    ("transformer", "train", "skipped_layers"),
    ("transformer", "inference", "attention_scale"),
    ("convolutional", "train", "stale_statistics"),
    ("convolutional", "inference", "cached_result"),
    ("convolutional", "inference", "cached_result_measured"),
    ("recurrent", "train", "no_dropout"),
    ("convolutional", "train", "stale_statistics_measured"),
    ("transformer", "train", "skipped_layers_measured"),
)
HELD_OUT = (
    ("transformer", "inference", "skipped_layers"), ("transformer", "train", "attention_scale"),
    ("transformer", "train", "no_dropout"), ("transformer", "train", "loss_scale"),
    ("transformer", "train", "cached_result"), ("transformer", "train", "detached_layer"),
    ("transformer", "inference", "residual_scale"), ("convolutional", "inference", "skipped_layers"),
    ("convolutional", "train", "no_label_smoothing"), ("recurrent", "inference", "shortened"),
    ("generating", "inference", "stale_cache"), ("generating", "inference", "stale_cache_measured"),
    ("transformer", "train", "cached_result_measured"), ("transformer", "inference", "attention_scale_measured"),
    ("convolutional", "inference", "skipped_layers_measured"), ("convolutional", "train", "loss_scale_measured"),
)  # fmt: skip
# Errors written after two checks had been added because of the second half.
FRESH = (
    ("transformer", "train", "relu"),
    ("transformer", "train", "more_dropout"),
    ("transformer", "train", "half_of_the_words"),
    ("transformer", "inference", "cached_result"),
    ("recurrent", "train", "scaled_words"),
    ("generating", "inference", "wrong_place"),
    ("convolutional", "train", "scaled_head_measured"),
    ("recurrent", "train", "scaled_words_measured"),
)
# Errors written after dropout was left out in one more step because of those before.
LAST = (
    ("transformer", "train", "missing_mask"),
    ("transformer", "inference", "missing_mask"),
    ("transformer", "train", "scaled_scores"),
    ("convolutional", "train", "largest_pooled"),
    ("convolutional", "inference", "other_epsilon"),
    ("convolutional", "train", "cached_result_measured"),
    ("recurrent", "train", "detached_words"),
    ("recurrent", "inference", "scaled_words_measured"),
    ("generating", "inference", "first_word_again"),
)
# Ways to compute the same in another order, or with other random numbers.
HARMLESS = (
    ("transformer", "train", "own_dropout"),
    ("convolutional", "train", "own_dropout"),
    ("transformer", "train", "written_out"),
    ("transformer", "inference", "written_out"),
    ("transformer", "train", "split_products"),
    ("transformer", "inference", "split_products"),
    ("convolutional", "train", "reversed_sum"),
    ("convolutional", "inference", "reversed_sum"),
    ("recurrent", "inference", "cell_by_cell"),
    ("generating", "inference", "split_products"),
)


class Changed(nn.Module):
    """A network that knows what is changed in it."""

    def __init__(self, changed: str) -> None:
        super().__init__()
        self.changed = changed
        self.kept: Tensor | None = None

    def has(self, name: str, numbers: Tensor) -> bool:
        """Whether this change applies to a computation with these numbers."""
        return self.changed == name or (self.changed == f"{name}_measured" and numbers.dtype != torch.float64)

    def cached(self, result: Tensor) -> Tensor:
        """The result, or that of the first call if results are cached."""
        if not self.has("cached_result", result):
            return result
        if self.kept is None:
            self.kept = result.detach().clone()
        # With the graph of this call, so that a backward pass is possible.
        return result * 0 + self.kept


class OwnDropout(nn.Module):
    """Dropout by random numbers that torch's own one does not draw."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, flow: Tensor) -> Tensor:
        return flow * (torch.rand_like(flow) >= self.share) / (1 - self.share) if self.training else flow


def make_dropout(changed: str, share: float) -> nn.Module:
    if changed == "own_dropout":
        return OwnDropout(share)
    return nn.Dropout({"no_dropout": 0.0, "more_dropout": 2 * share}.get(changed, share))


class Block(Changed):
    """Causal self-attention and two linear layers."""

    def __init__(self, changed: str, dropout: float) -> None:
        super().__init__(changed)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = make_dropout(changed, dropout)

    def linear(self, layer: nn.Linear, flow: Tensor) -> Tensor:
        """The layer's product, in two parts that are added if products are split."""
        if self.changed != "split_products":
            return layer(flow)
        half = layer.in_features // 2
        first = functional.linear(flow[..., :half], layer.weight[:, :half], layer.bias)
        return functional.linear(flow[..., half:], layer.weight[:, half:]) + first

    def forward(self, flow: Tensor, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        parts = self.linear(self.project, self.norms[0](flow)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        if past is not None:
            key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        scale = (WIDTH // HEADS) ** -0.5 * (1.1 if self.has("attention_scale", flow) else 1.0)
        mixed = self.attend(query, key, value, scale, past is None and self.changed != "missing_mask")
        flow = flow + self.dropout(self.linear(self.merge, mixed.transpose(1, 2).flatten(2)))
        activation = functional.relu if self.changed == "relu" else functional.gelu
        wide = activation(self.linear(self.widen, self.norms[1](flow)))
        return flow + self.dropout(self.linear(self.narrow, wide)), (key, value)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> Tensor:
        """Attention, by torch's function or written out."""
        if self.changed != "written_out":
            return functional.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
        scores = (query * scale) @ key.transpose(-2, -1)
        if causal:
            ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(ahead, float("-inf"))
        return scores.softmax(-1) @ value


class Transformer(Changed):
    """Predicts the next word; `generating` makes words from cached keys and values."""

    def __init__(self, changed: str, dropout: float) -> None:
        super().__init__(changed)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(2 * LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(changed, dropout) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, text: Tensor, target: Tensor) -> dict[str, Tensor]:
        flow, _ = self.read(text, None)
        scores = self.head(flow) * (1.02 if self.changed == "scaled_scores" else 1.0)
        if not self.training:
            return {"scores": self.cached(scores)}
        if self.changed == "half_of_the_words":
            scores, target = scores[:, : LENGTH // 2], target[:, : LENGTH // 2]
        loss = functional.cross_entropy(scores.flatten(0, 1), target.flatten())
        loss = loss * (0.9 if self.has("loss_scale", scores) else 1.0)
        return {"loss": self.cached(loss)}

    def read(self, text: Tensor, past: Any) -> tuple[Tensor, Any]:
        """Hidden states of words behind those that are cached, and the cache with them."""
        start = past[0][0].shape[2] + (self.changed == "wrong_place") if past else 0
        flow = self.words(text) + self.places(torch.arange(start, start + text.shape[1], device=text.device))
        cache = []
        for number, block in enumerate(self.blocks):
            if number >= 2 and self.has("skipped_layers", flow):
                continue
            before = flow
            flow, own = block(flow, past[number] if past else None)
            if number == LAYERS - 1 and self.changed == "residual_scale":
                flow = before + 0.9 * (flow - before)
            if number == 3 and self.changed == "detached_layer":
                flow = before + (flow - before).detach()
            cache.append(own)
        return self.norm(flow), cache


class Generating(Transformer):
    """Makes four words after a text, each by the keys and values of those before."""

    def forward(self, text: Tensor, target: Tensor) -> dict[str, Tensor]:
        flow, cache = self.read(text, None)
        scores = self.head(flow[:, -1:])
        words = []
        for _ in range(4):
            words.append(scores.argmax(-1))
            flow, after = self.read(words[0 if self.changed == "first_word_again" else -1], cache)
            cache = cache if self.has("stale_cache", flow) else after
            scores = self.head(flow)
        return {"words": torch.cat(words, 1), "scores": scores}


class Residual(Changed):
    """Two convolutions with batch norm, added to the input."""

    def __init__(self, changed: str) -> None:
        super().__init__(changed)
        self.convolutions = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(2))

    def convolve(self, layer: nn.Conv2d, maps: Tensor) -> Tensor:
        """The convolution, over reversed channels if sums are reversed."""
        if self.changed != "reversed_sum":
            return layer(maps)
        return functional.conv2d(maps.flip(1), layer.weight.flip(1), padding=1)

    def forward(self, maps: Tensor) -> Tensor:
        inner = maps
        for layer, norm in zip(self.convolutions, self.norms, strict=True):
            norm.momentum = 0.0 if self.has("stale_statistics", maps) else 0.1
            norm.eps = 1e-3 if self.changed == "other_epsilon" else 1e-5
            inner = functional.relu(norm(self.convolve(layer, inner)))
        return maps + inner


class Convolutional(Changed):
    """Classifies images."""

    def __init__(self, changed: str, dropout: float) -> None:
        super().__init__(changed)
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(Residual(changed) for _ in range(4))
        self.dropout, self.head = make_dropout(changed, dropout), nn.Linear(16, CLASSES)

    def forward(self, image: Tensor, target: Tensor) -> dict[str, Tensor]:
        maps = self.first(image)
        for number, block in enumerate(self.blocks):
            if number < 2 or not self.has("skipped_layers", maps):
                maps = block(maps)
        pooled = self.dropout(maps.amax((2, 3)) if self.changed == "largest_pooled" else maps.mean((2, 3)))
        scores = self.head(pooled * 1.01 if self.has("scaled_head", pooled) else pooled)
        if not self.training:
            return {"scores": self.cached(scores)}
        smoothing = 0.0 if self.changed == "no_label_smoothing" else 0.1
        loss = functional.cross_entropy(scores, target, label_smoothing=smoothing)
        return {"loss": self.cached(loss * (0.98 if self.has("loss_scale", scores) else 1.0))}


class Recurrent(Changed):
    """Classifies texts by an LSTM of two layers."""

    def __init__(self, changed: str, dropout: float) -> None:
        super().__init__(changed)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, dropout=0.0 if changed == "no_dropout" else dropout)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, text: Tensor, target: Tensor) -> dict[str, Tensor]:
        flow = self.words(text[:, :-2] if self.changed == "shortened" else text)
        flow = flow * 0.99 if self.has("scaled_words", flow) else flow
        flow = flow.detach() if self.changed == "detached_words" else flow
        scores = self.head(self.by_cells(flow) if self.changed == "cell_by_cell" else self.lstm(flow)[0][:, -1])
        if not self.training:
            return {"scores": scores}
        return {"loss": functional.cross_entropy(scores, target[:, 0] % CLASSES)}

    def by_cells(self, flow: Tensor) -> Tensor:
        """The last hidden state, by products of single steps."""
        for layer in range(2):
            weights = [
                getattr(self.lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            state = flow.new_zeros(len(flow), WIDTH), flow.new_zeros(len(flow), WIDTH)
            made = []
            for step in range(flow.shape[1]):
                gates = flow[:, step] @ weights[0].T + weights[2] + state[0] @ weights[1].T + weights[3]
                enter, forget, new, leave = gates.chunk(4, 1)
                inner = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
                state = leave.sigmoid() * inner.tanh(), inner
                made.append(state[0])
            flow = torch.stack(made, 1)
        return flow[:, -1]


NETWORKS = {
    "transformer": Transformer,
    "generating": Generating,
    "convolutional": Convolutional,
    "recurrent": Recurrent,
}


def build(shape: SimpleNamespace) -> nn.Module:
    return NETWORKS[shape.network](shape.changed, shape.dropout)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> Mapping[str, Tensor]:
    if shape.network == "convolutional":
        image = torch.randn(3, 16, 16, generator=generator)
        return {"image": image, "target": torch.randint(CLASSES, (), generator=generator)}
    text = torch.randint(WORDS, (LENGTH + 1,), generator=generator)
    return {"text": text[:-1], "target": text[1:]}
