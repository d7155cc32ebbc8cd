"""Five small programs with one planted error each, and ways to compute the same: what no tolerance was chosen by.

A tabular network, a convolutional one with batch norm, a decoder of padded texts, a recurrent network and a
recommender. The lists were written before the checks that they score were changed.
"""

import functools
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SHAPE = {"network": "tabular", "changed": "none"}
WORKLOADS = {"trimmed": {"train": {"batch": 8}, "inference": {"batch": 8}}}
COLUMNS, HIDDEN, CLASSES = 24, 64, 10
WORDS, WIDTH, HEADS, SHARED, LENGTH, BLOCKS = 120, 48, 4, 2, 20, 3
USERS, ITEMS, TAGS, FACTORS = 200, 300, 40, 16
# Left out of the loss.
IGNORED = -100
BF16: Mapping[str, Any] = {"precision": "bf16"}
Case = tuple[str, str, str, Mapping[str, Any]]
# Network, phase, what is changed, and settings of the changed side. Those that end in `_measured` are not there in double
# precision.
ERRORS: tuple[Case, ...] = (
    ("tabular", "train", "scaled_layer_measured", BF16), ("tabular", "train", "summed_loss", {}),
    ("tabular", "inference", "missing_bias_measured", BF16), ("tabular", "train", "dropped_rows_measured", BF16),
    ("tabular", "train", "repeated_half_measured", {}), ("tabular", "train", "lost_momentum_measured", BF16),
    ("tabular", "train", "halved_rate_measured", BF16), ("tabular", "train", "swapped_labels", BF16),
    ("tabular", "train", "clipped_loss_measured", {}), ("tabular", "train", "lower_precision_measured", {}),
    ("images", "train", "evaluated_norm_measured", BF16), ("images", "inference", "other_epsilon", BF16),
    ("images", "inference", "missing_residual_measured", BF16),
    ("images", "train", "replicated_padding_measured", BF16), ("images", "train", "stale_statistics_measured", BF16),
    ("images", "inference", "average_pooled", {}), ("images", "train", "missing_activation", BF16),
    ("images", "train", "unweighted_classes_measured", BF16), ("images", "train", "doubled_decay", {}),
    ("images", "inference", "forgotten_mean_measured", {}), ("texts", "inference", "shifted_positions_measured", BF16),
    ("texts", "train", "look_ahead_measured", BF16), ("texts", "train", "attended_padding_measured", {}),
    ("texts", "train", "scale_by_width", BF16), ("texts", "train", "padded_loss", {}),
    ("texts", "train", "kept_gradients_measured", BF16), ("texts", "train", "other_epsilon_measured", {}),
    ("texts", "inference", "transposed_weights", BF16), ("texts", "train", "detached_bias_measured", BF16),
    ("texts", "inference", "tiled_heads", {}), ("series", "train", "no_dropout", {}),
    ("series", "train", "pooled_padding_measured", {}), ("series", "inference", "one_direction", BF16),
    ("series", "train", "carried_state_measured", BF16), ("series", "train", "unclipped", BF16),
    ("ratings", "train", "other_temperature_measured", BF16), ("ratings", "inference", "summed_tags", {}),
    ("ratings", "train", "missing_item_bias", BF16), ("ratings", "train", "stale_table_measured", {}),
    ("ratings", "train", "auxiliary_weight_measured", BF16),
)  # fmt: skip
# `both`: settings of the unchanged side too.
HARMLESS: tuple[Case, ...] = (
    ("tabular", "train", "none", BF16), ("tabular", "inference", "none", BF16), ("images", "train", "none", BF16),
    ("images", "inference", "none", BF16), ("texts", "train", "none", BF16), ("texts", "inference", "none", BF16),
    ("series", "train", "none", BF16), ("series", "inference", "none", BF16), ("ratings", "train", "none", BF16),
    ("ratings", "inference", "none", BF16), ("images", "train", "none", {"channels_last": True}),
    ("images", "train", "none", {"channels_last": True, **BF16}),
    ("images", "inference", "none", {"channels_last": True, "both": BF16, **BF16}),
    ("texts", "train", "none", {"optimizer": "fused"}), ("texts", "train", "none", {"optimizer": "for_loop", **BF16}),
    ("tabular", "train", "none", {"optimizer": "foreach"}), ("texts", "train", "none", {"checkpoint": True}),
    ("texts", "train", "none", {"checkpoint": True, **BF16}), ("tabular", "train", "none", {"compile": True}),
    ("texts", "inference", "none", {"compile": True}), ("images", "train", "none", {"compile": True, **BF16}),
    ("texts", "train", "none", {"threads": 2, "both": BF16, **BF16}), ("images", "train", "none", {"threads": 2}),
    ("texts", "inference", "none", {"precision": "fp16"}), ("tabular", "train", "none", {"precision": "tf32"}),
    ("texts", "train", "written_out", {}), ("texts", "train", "written_out", BF16),
    ("texts", "inference", "separate_projections", {}), ("tabular", "train", "reversed_sum", {}),
    ("tabular", "train", "halves", BF16), ("tabular", "train", "other_order_of_rows", BF16),
    ("images", "inference", "folded_norm", {}), ("images", "inference", "folded_norm", BF16),
    ("images", "train", "written_as_product", BF16), ("series", "inference", "cell_by_cell", {}),
    ("series", "inference", "cell_by_cell", BF16), ("ratings", "train", "gathered_tags", {}),
    ("ratings", "train", "product_with_rows", BF16), ("texts", "train", "loss_in_chunks", {}),
    ("texts", "train", "loss_in_chunks", BF16),
)  # fmt: skip


class Program(nn.Module):
    """A network that knows what is changed in its program."""

    def __init__(self, changed: str) -> None:
        super().__init__()
        self.changed = changed

    def has(self, name: str) -> bool:
        """Whether this change applies."""
        if self.changed == f"{name}_measured":
            return next(self.parameters()).dtype != torch.float64
        return self.changed == name

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Tabular(Program):
    """Predicts a number from columns, by a multilayer perceptron and SGD."""

    def __init__(self, changed: str) -> None:
        super().__init__(changed)
        self.layers = nn.ModuleList(nn.Linear(COLUMNS if not number else HIDDEN, HIDDEN) for number in range(3))
        self.head = nn.Linear(HIDDEN, 1)

    def optimizer(self) -> torch.optim.Optimizer:
        rate, momentum = 0.02 if self.has("halved_rate") else 0.04, 0.0 if self.has("lost_momentum") else 0.9
        return torch.optim.SGD(self.parameters(), lr=rate, momentum=momentum)

    def forward(self, columns: Tensor, target: Tensor) -> dict[str, Tensor]:
        half = len(columns) // 2
        if self.has("repeated_half"):
            columns, target = columns[:half].repeat(2, 1), target[:half].repeat(2)
        if self.has("other_order_of_rows"):
            columns, target = columns.flip(0), target.flip(0)
        parts = columns.split(half) if self.has("halves") else (columns,)
        scores = torch.cat([self.predict(part) for part in parts])
        if not self.training:
            return {"scores": scores}
        target = target.roll(1) if self.has("swapped_labels") else target
        errors = (scores - target) ** 2
        errors = errors.clamp(max=2.0) if self.has("clipped_loss") else errors
        errors = errors[: 3 * len(errors) // 4] if self.has("dropped_rows") else errors
        return {"loss": errors.sum() if self.has("summed_loss") else errors.mean()}

    def predict(self, flow: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            weight = layer.weight
            if self.has("reversed_sum"):
                flow, weight = flow.flip(1), weight.flip(1)
            wide = functional.linear(flow, weight, layer.bias) * (
                1.05 if self.has("scaled_layer") and number == 1 else 1
            )
            flow = functional.relu(wide)
            flow = flow.bfloat16().float() if self.has("lower_precision") else flow
        return functional.linear(flow, self.head.weight, None if self.has("missing_bias") else self.head.bias)[:, 0]


class Residual(nn.Module):
    """Two convolutions with batch norm, added to the input."""

    def __init__(self, number: int, program: Program) -> None:
        super().__init__()
        self.number, self.has = number, program.has
        self.convolutions = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(2))
        for norm in self.norms:
            norm.running_mean.normal_(std=0.3)
            norm.running_var.uniform_(0.5, 1.5)

    def forward(self, maps: Tensor) -> Tensor:
        inner = functional.relu(self.convolve(0, maps))
        inner = self.convolve(1, inner)
        whole = inner if self.number == 1 and self.has("missing_residual") else maps + inner
        return whole if self.number == 2 and self.has("missing_activation") else functional.relu(whole)

    def convolve(self, place: int, maps: Tensor) -> Tensor:
        """Convolution and batch norm."""
        weight, norm, here = self.convolutions[place].weight, self.norms[place], self.number == 1 and not place
        epsilon = 1e-3 if self.has("other_epsilon") else norm.eps
        mean = norm.running_mean * 0 if here and self.has("forgotten_mean") else norm.running_mean
        if self.has("folded_norm"):
            scale = norm.weight * (norm.running_var + epsilon).rsqrt()
            return functional.conv2d(maps, weight * scale[:, None, None, None], norm.bias - mean * scale, padding=1)
        if here and self.has("replicated_padding"):
            maps = functional.conv2d(functional.pad(maps, (1, 1, 1, 1), mode="replicate"), weight)
        elif self.has("written_as_product"):
            maps = (weight.flatten(1) @ functional.unfold(maps, 3, padding=1)).unflatten(-1, maps.shape[2:])
        else:
            maps = functional.conv2d(maps, weight, padding=1)
        momentum = 0.0 if here and self.has("stale_statistics") else 0.1
        batch = self.training and not (here and self.has("evaluated_norm"))
        return functional.batch_norm(maps, mean, norm.running_var, norm.weight, norm.bias, batch, momentum, epsilon)


class Images(Program):
    """Classifies images by residual blocks, with weights of classes, by SGD with weight decay."""

    def __init__(self, changed: str) -> None:
        super().__init__(changed)
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(Residual(number, self) for number in range(3))
        self.head = nn.Linear(16, CLASSES)
        self.register_buffer("weights", torch.linspace(0.5, 1.5, CLASSES))

    def optimizer(self) -> torch.optim.Optimizer:
        decay = 1e-3 if self.has("doubled_decay") else 5e-4
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, weight_decay=decay)

    def forward(self, image: Tensor, target: Tensor) -> dict[str, Tensor]:
        maps = self.blocks[0](self.first(image))
        maps = functional.avg_pool2d(maps, 2) if self.has("average_pooled") else functional.max_pool2d(maps, 2)
        scores = self.head(self.blocks[2](self.blocks[1](maps)).mean((2, 3)))
        if not self.training:
            return {"scores": scores}
        weights = None if self.has("unweighted_classes") else self.weights
        return {"loss": functional.cross_entropy(scores, target, weights, label_smoothing=0.1)}


class Block(nn.Module):
    """Causal attention in which two heads share keys and values, and two linear layers."""

    def __init__(self, number: int, program: Program) -> None:
        super().__init__()
        self.number, self.has = number, program.has
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.project, self.merge = nn.Linear(WIDTH, WIDTH + 2 * WIDTH // SHARED), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def norm(self, place: int, flow: Tensor) -> Tensor:
        layer = self.norms[place]
        epsilon = 1e-3 if self.has("other_epsilon") else layer.eps
        return functional.layer_norm(flow, (WIDTH,), layer.weight, layer.bias, epsilon)

    def forward(self, flow: Tensor, mask: Tensor) -> Tensor:
        normed, widths = self.norm(0, flow), (WIDTH, WIDTH // SHARED, WIDTH // SHARED)
        if self.has("separate_projections"):
            layers = zip(self.project.weight.split(widths), self.project.bias.split(widths), strict=True)
            parts = [functional.linear(normed, *layer) for layer in layers]
        else:
            parts = list(self.project(normed).split(widths, -1))
        query, key, value = (part.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in parts)
        if self.has("tiled_heads"):
            key, value = (part.repeat(1, SHARED, 1, 1) for part in (key, value))
        else:
            key, value = (part.repeat_interleave(SHARED, 1) for part in (key, value))
        mixed = self.attend(query, key, value, mask).transpose(1, 2).flatten(2)
        weight = self.merge.weight.T if self.number == 1 and self.has("transposed_weights") else self.merge.weight
        flow = flow + functional.linear(mixed, weight, self.merge.bias)
        wide = functional.gelu(self.widen(self.norm(1, flow)))
        bias = self.narrow.bias.detach() if self.number == 1 and self.has("detached_bias") else self.narrow.bias
        return flow + functional.linear(wide, self.narrow.weight, bias)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scale = WIDTH**-0.5 if self.has("scale_by_width") else (WIDTH // HEADS) ** -0.5
        if not self.has("written_out"):
            return functional.scaled_dot_product_attention(query, key, value, mask, scale=scale)
        scores = (query @ key.transpose(-2, -1) * scale).masked_fill(~mask, float("-inf"))
        return scores.softmax(-1) @ value


class Texts(Program):
    """Predicts the next word of texts that are padded at their beginning, by AdamW."""

    def __init__(self, changed: str) -> None:
        super().__init__(changed)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH + 1, WIDTH)
        self.blocks = nn.ModuleList(Block(number, self) for number in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        for part in (self.words, self.places):
            nn.init.normal_(part.weight, std=0.05)

    def optimizer(self) -> torch.optim.Optimizer:
        made = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.1)
        if self.has("kept_gradients"):
            made.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
        return made

    def forward(self, text: Tensor, target: Tensor) -> dict[str, Tensor]:
        places = torch.arange(LENGTH, device=text.device) + self.has("shifted_positions")
        flow = self.words(text) + self.places(places)
        square = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=text.device)
        seen = square.tril(1 if self.has("look_ahead") else 0)
        real = text != 0
        mask = seen if self.has("attended_padding") else seen & (real[:, None, :] | square.tril(0).triu(0))
        for block in self.blocks:
            flow = block(flow, mask if mask.dim() == 2 else mask[:, None])
        scores = self.head(self.norm(flow))
        return {"loss": self.lose(scores.flatten(0, 1), target.flatten())} if self.training else {"scores": scores}

    def lose(self, scores: Tensor, target: Tensor) -> Tensor:
        if self.has("padded_loss"):
            return functional.cross_entropy(scores, target.clamp(min=0))
        if not self.has("loss_in_chunks"):
            return functional.cross_entropy(scores, target, ignore_index=IGNORED)
        chunks = zip(scores.split(32), target.split(32), strict=True)
        sums = [functional.cross_entropy(*chunk, ignore_index=IGNORED, reduction="sum") for chunk in chunks]
        return torch.stack(sums).sum() / (target != IGNORED).sum()


class Series(Program):
    """Classifies series of several lengths by a GRU in both directions, by SGD with clipped gradients."""

    def __init__(self, changed: str) -> None:
        super().__init__(changed)
        share = 0.0 if changed == "no_dropout" else 0.1
        self.cells = nn.GRU(COLUMNS, WIDTH, 2, batch_first=True, bidirectional=True, dropout=share)
        self.head = nn.Linear(2 * WIDTH, CLASSES)
        self.state: Tensor | None = None

    def optimizer(self) -> torch.optim.Optimizer:
        made = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)
        if not self.has("unclipped"):
            made.register_step_pre_hook(lambda *given: nn.utils.clip_grad_norm_(self.parameters(), 0.2) and None)
        return made

    def forward(self, series: Tensor, length: Tensor, target: Tensor) -> dict[str, Tensor]:
        if self.has("cell_by_cell"):
            flow = self.by_cells(series)
        else:
            flow, state = self.cells(series, self.state)
            self.state = state.detach() if self.has("carried_state") else None
        if self.has("one_direction"):
            flow = torch.cat((flow[..., :WIDTH], torch.zeros_like(flow[..., WIDTH:])), -1)
        real = torch.arange(series.shape[1], device=series.device) < length[:, None]
        kept = torch.ones_like(real) if self.has("pooled_padding") else real
        scores = self.head((flow * kept[..., None]).sum(1) / kept.sum(1, keepdim=True))
        return {"loss": functional.cross_entropy(scores, target)} if self.training else {"scores": scores}

    def by_cells(self, flow: Tensor) -> Tensor:
        """States of both directions, by products of single steps."""
        for layer in range(2):
            directions = []
            for end in ("", "_reverse"):
                names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                enter, again, first, second = (getattr(self.cells, f"{name}_l{layer}{end}") for name in names)
                state, made = flow.new_zeros(len(flow), WIDTH), []
                for step in reversed(range(flow.shape[1])) if end else range(flow.shape[1]):
                    outside = functional.linear(flow[:, step], enter, first).chunk(3, 1)
                    inside = functional.linear(state, again, second).chunk(3, 1)
                    reset, update = ((outside[at] + inside[at]).sigmoid() for at in range(2))
                    new = (outside[2] + reset * inside[2]).tanh()
                    state = new + update * (state - new)
                    made.append(state)
                directions.append(torch.stack(made[::-1] if end else made, 1))
            flow = torch.cat(directions, -1)
        return flow


class Ratings(Program):
    """Recommends items to users: scores against the batch's other items, and a rating, by Adam."""

    def __init__(self, changed: str) -> None:
        super().__init__(changed)
        self.users, self.items, self.tags = (nn.Embedding(count, FACTORS) for count in (USERS, ITEMS, TAGS))
        self.popular = nn.Embedding(ITEMS, 1)
        self.tower = nn.Sequential(nn.Linear(2 * FACTORS, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, FACTORS))
        self.rate = nn.Linear(FACTORS, 1)
        self.copied: Tensor | None = None

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)

    def forward(self, user: Tensor, tags: Tensor, item: Tensor, rating: Tensor) -> dict[str, Tensor]:
        person = self.tower(torch.cat((self.look_up(self.users, user), self.combine(tags)), -1))
        if self.has("stale_table"):
            self.copied = self.items.weight.detach().clone() if self.copied is None else self.copied
            thing = functional.embedding(item, self.items.weight * 0 + self.copied)
        else:
            thing = self.look_up(self.items, item)
        temperature = 0.12 if self.has("other_temperature") else 0.1
        scores = functional.normalize(person, dim=-1) @ functional.normalize(thing, dim=-1).T / temperature
        scores = scores if self.has("missing_item_bias") else scores + self.popular(item)[:, 0]
        if not self.training:
            return {"scores": scores}
        rated = self.rate(person * thing)[:, 0]
        loss = functional.cross_entropy(scores, torch.arange(len(user), device=user.device))
        weight = 0.05 if self.has("auxiliary_weight") else 0.1
        return {"loss": loss + weight * functional.mse_loss(rated, rating)}

    def look_up(self, table: nn.Embedding, rows: Tensor) -> Tensor:
        if not self.has("product_with_rows"):
            return table(rows)
        return functional.one_hot(rows, table.num_embeddings).to(table.weight.dtype) @ table.weight

    def combine(self, tags: Tensor) -> Tensor:
        if self.has("gathered_tags"):
            return self.tags(tags).mean(1)
        return functional.embedding_bag(tags, self.tags.weight, mode="sum" if self.has("summed_tags") else "mean")


NETWORKS: Mapping[str, type[Program]] = {
    "tabular": Tabular,
    "images": Images,
    "texts": Texts,
    "series": Series,
    "ratings": Ratings,
}


def build(shape: SimpleNamespace) -> nn.Module:
    return NETWORKS[shape.network](shape.changed)


def optimizers(network: Any, others: Any) -> Iterable[torch.optim.Optimizer]:
    return [network.optimizer()]


def sample(shape: SimpleNamespace, generator: torch.Generator) -> Mapping[str, Tensor]:
    whole, normal = (functools.partial(make, generator=generator) for make in (torch.randint, torch.randn))
    if shape.network == "tabular":
        return {"columns": normal(COLUMNS), "target": normal(())}
    if shape.network == "images":
        return {"image": normal(3, 16, 16), "target": whole(CLASSES, ())}
    if shape.network == "series":
        return {"series": normal(LENGTH, COLUMNS), "length": whole(5, LENGTH + 1, ()), "target": whole(CLASSES, ())}
    if shape.network == "ratings":
        return {"user": whole(USERS, ()), "tags": whole(TAGS, (5,)), "item": whole(ITEMS, ()), "rating": normal(())}
    text = whole(1, WORDS, (LENGTH + 1,))
    before = torch.arange(LENGTH) < whole(0, LENGTH // 2, ())
    return {"text": text[:-1].masked_fill(before, 0), "target": text[1:].masked_fill(before, IGNORED)}
