"""BERT-base: a bidirectional Transformer encoder, trained to fill in masked tokens.

torch's own encoder layers: attention through scaled_dot_product_attention while training, and their fused path in
inference.
"""

from collections.abc import Iterable
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks import tokens
from profzoo.harness.tasks.tokens import cross_entropy as loss

GROUPS = ("language", "transformer", "classic")
SOURCE = "Devlin et al. 2018, arXiv:1810.04805, section 3; 110 M parameters as given there for the base size"
PARAMETERS = 110_000_000
DIFFERENCE = "110 M is rounded; the network has the head that fills in masked tokens, and no pooler"
SHAPE = {"vocabulary": 30_522, "positions": 512, "hidden": 768, "layers": 12, "heads": 12, "dropout": 0.1}
# Of no AI Benchmark; the reference is the batch and length that question answering is usually tuned with.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 4, "tokens": 128},
        "inference": {"batch": 4, "tokens": 128},
    },
    "reference": {
        "train": {"batch": 32, "tokens": 384},
        "inference": {"batch": 32, "tokens": 384},
    },
}
MASKED_SHARE, MASK, IGNORED = 0.15, 3, -100


class BERT(nn.Module):
    """From tokens (batch, length) to scores of every token, (batch, length, vocabulary)."""

    def __init__(self, vocabulary: int, positions: int, hidden: int, layers: int, heads: int, dropout: float) -> None:
        """Sizes; positions: the longest text."""
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.sentences = nn.Embedding(2, hidden)
        self.norm, self.dropout = nn.LayerNorm(hidden, eps=1e-12), nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            hidden, heads, 4 * hidden, dropout, nn.functional.gelu, layer_norm_eps=1e-12, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """Scores from each token's last hidden state, by the embeddings of the words."""
        places = torch.arange(text.shape[1], device=text.device)
        flow = self.words(text) + self.places(places) + self.sentences(torch.zeros_like(text))
        flow = self.head(self.encoder(self.dropout(self.norm(flow))))
        return nn.functional.linear(flow, self.words.weight, self.bias)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return BERT(shape.vocabulary, shape.positions, shape.hidden, shape.layers, shape.heads, shape.dropout)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A text (tokens,) with some masked, and those (tokens,), all others being -100; the first is always masked."""
    text = tokens.random(shape.vocabulary, shape.tokens, generator)
    masked = torch.rand(shape.tokens, generator=generator) < MASKED_SHARE
    masked[0] = True
    return text.masked_fill(masked, MASK), text.masked_fill(~masked, IGNORED)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with weight decay (appendix A.2)."""
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)


def split(network: BERT) -> dict[str, str]:
    """The two linear layers after the attention of each layer."""
    layers = range(len(network.encoder.layers))
    ways = (("linear1", "columns"), ("linear2", "rows"))
    return {f"encoder.layers.{layer}.{name}": how for layer in layers for name, how in ways}
