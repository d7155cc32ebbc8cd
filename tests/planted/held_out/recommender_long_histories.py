"""A recommender that reads what users did before, padded to 500 things, though none did more than a hundred."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from models.dlrm import loss
from tests.planted.networks.transformer import two_layers

SHAPE = {"fault": True, "items": 20000, "most": 500, "real": 100, "width": 256, "layers": 3}
WORKLOADS = {"trimmed": {"train": {"batch": 128}}}
TINY = {"batch": 2, "items": 30, "most": 20, "real": 5, "width": 16, "layers": 1}
HEADS = 4


class History(nn.Module):
    """What an item in question sees of a user's history, layer by layer."""

    def __init__(self, items: int, width: int, layers: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(items, width)
        self.told = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(layers))
        self.feeds = nn.ModuleList(two_layers(width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, given: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """A score (batch,) of items (batch,), by histories (batch, length) of so many items (batch,)."""
        history, count, item = given
        asked, past = self.vectors(item)[:, None], self.vectors(history)
        real = (torch.arange(history.shape[1], device=history.device) < count[:, None])[:, None, None]
        for told, feed, norm in zip(self.told, self.feeds, self.norms, strict=True):
            past = past + feed(norm(past))
            key, value = told(past).unflatten(-1, (2, HEADS, -1)).permute(2, 0, 3, 1, 4)
            query = asked.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            seen = scaled_dot_product_attention(query.to(key.dtype), key, value, attn_mask=real)
            asked = asked + seen.transpose(1, 2).flatten(2)
        return self.head(asked[:, 0]).squeeze(1)


def build(shape: SimpleNamespace) -> nn.Module:
    return History(shape.items, shape.width, shape.layers)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, int, int], int]:
    """A history as long as is asked for, how much of it is real, an item and whether it was clicked."""
    count = int(torch.randint(1, shape.real + 1, (), generator=generator))
    history = torch.randint(shape.items, (shape.most,), generator=generator)
    history[count:] = 0
    item, clicked = (int(torch.randint(most, (), generator=generator)) for most in (shape.items, 2))
    return (history if shape.fault else history[: shape.real], count, item), clicked


def collate(samples: Sequence[tuple[tuple[Tensor, int, int], int]]) -> tuple[tuple[Tensor, ...], Tensor]:
    given, clicked = zip(*samples, strict=True)
    histories, counts, items = zip(*given, strict=True)
    return (torch.stack(histories), torch.tensor(counts), torch.tensor(items)), torch.tensor(clicked)
