"""GNMT: an LSTM encoder and decoder of eight layers each with attention; inference decodes by beam search.

Given whole sentences, every layer is one call of cuDNN: attention is asked by the decoder's bottom layer, and goes to
the layers above it. Decoding goes a token at a time, through all layers.

Parameters, with a vocabulary of 32_000 and 1024 units (an LSTM has 4*1024*(inputs + 1024) + 8*1024):
  two embeddings            2*32_000*1024                                 =  65_536_000
  encoder, both ways        2*LSTM(1024)                                  =  16_793_600
  encoder, then 7           LSTM(2048) + 6*LSTM(1024)                     =  62_971_904
  decoder, bottom           LSTM(1024)                                    =   8_396_800
  decoder, 7 with context   7*LSTM(2048)                                  =  88_137_728
  attention                 2*1024*1024 + 2*1024 + 1                      =   2_099_201
  classifier                1024*32_000 + 32_000                          =  32_800_000
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks import tokens
from profzoo.harness.tasks.tokens import cross_entropy as loss
from profzoo.harness.tasks.tokens import note_token

GROUPS = ("recurrent", "language", "classic")
SOURCE = "Wu et al. 2016, arXiv:1609.08144, section 3 and figure 1; parameters derived in the file"
PARAMETERS = 276_735_233
SHAPE = {"vocabulary": 32_000, "hidden": 1024, "layers": 8, "dropout": 0.2, "beams": 4}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 8, "tokens": 20},
        "inference": {"batch": 1, "tokens": 20},
    },
    # AI Benchmark only infers; training takes the paper's batch (section 8.2).
    "reference": {
        "train": {"batch": 128, "tokens": 20},
        "inference": {"batch": 1, "tokens": 20},
    },
}
START = 1
State = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """Additive attention with normalised weights (Bahdanau et al. 2015; Salimans and Kingma 2016)."""

    def __init__(self, hidden: int) -> None:
        """Size of queries and keys."""
        super().__init__()
        self.query, self.key = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.direction, self.bias = nn.Parameter(torch.randn(hidden)), nn.Parameter(torch.zeros(hidden))
        self.length = nn.Parameter(torch.ones(1))

    def forward(self, queries: Tensor, encoded: Tensor, keys: Tensor) -> Tensor:
        """Contexts (batch, steps, hidden) of queries; encoded and keys: (batch, words, hidden)."""
        weights = self.length * self.direction / self.direction.norm()
        scores = torch.tanh(self.query(queries)[:, :, None] + keys[:, None] + self.bias) @ weights
        return scores.softmax(-1) @ encoded


class Encoder(nn.Module):
    """From tokens (batch, words) to (batch, words, hidden)."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, dropout: float) -> None:
        """Sizes; the first layer reads both ways, the third and later ones are residual."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.both_ways = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        widths = [2 * hidden] + [hidden] * (layers - 2)
        self.layers = nn.ModuleList(nn.LSTM(width, hidden, batch_first=True) for width in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Tensor) -> Tensor:
        """Outputs of the last layer for each word."""
        flow = self.both_ways(self.dropout(self.embedding(words)))[0]
        for layer in self.layers:
            output = layer(self.dropout(flow))[0]
            flow = output + flow if output.shape == flow.shape else output
        return flow


class Decoder(nn.Module):
    """From tokens (batch, steps) and the encoded words to scores of the next token (batch, steps, vocabulary)."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, dropout: float) -> None:
        """Sizes; the third and later layers are residual."""
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.bottom = nn.LSTM(hidden, hidden, batch_first=True)
        self.attention = Attention(hidden)
        self.layers = nn.ModuleList(nn.LSTM(2 * hidden, hidden, batch_first=True) for _ in range(layers - 1))
        self.classifier = nn.Linear(hidden, vocabulary)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, words: Tensor, encoded: Tensor, keys: Tensor, states: Sequence[State] | None = None
    ) -> tuple[Tensor, list[State]]:
        """Scores, and the state of each layer afterwards."""
        before: Sequence[State | None] = states or [None] * (1 + len(self.layers))
        asked, state = self.bottom(self.dropout(self.embedding(words)), before[0])
        context, after, flow = self.attention(asked, encoded, keys), [state], asked
        for index, layer in enumerate(self.layers):
            output, state = layer(torch.cat((self.dropout(flow), context), dim=-1), before[index + 1])
            flow = output + flow if index else output
            after.append(state)
        return self.classifier(self.dropout(flow)), after


class GNMT(nn.Module):
    """From (source (batch, words), target so far (batch, steps)) to scores of each next token."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, dropout: float, beams: int) -> None:
        """Sizes; beams: hypotheses that decoding follows, 1 for greedy search."""
        super().__init__()
        self.encoder = Encoder(vocabulary, hidden, layers, dropout)
        self.decoder = Decoder(vocabulary, hidden, layers, dropout)
        self.beams = beams

    def forward(self, sentences: tuple[Tensor, Tensor]) -> Tensor:
        """Scores (batch, steps, vocabulary), the target being known."""
        source, target = sentences
        encoded = self.encoder(source)
        return self.decoder(target, encoded, self.decoder.attention.key(encoded))[0]

    def translate(self, source: Tensor, steps: int) -> Tensor:
        """The best hypothesis of each sentence, (batch, steps), by beam search of fixed length."""
        batch, beams = len(source), self.beams
        encoded = self.encoder(source).repeat_interleave(beams, dim=0)
        keys = self.decoder.attention.key(encoded)
        found = torch.full((batch * beams, 1), START, device=source.device)
        # At first all beams are the same, so only one may go on.
        scores = torch.full((batch, beams), float("-inf"), device=source.device)
        scores[:, 0] = 0
        offsets = torch.arange(batch, device=source.device)[:, None] * beams
        states: list[State] | None = None
        for _ in range(steps):
            predicted, states = self.decoder(found[:, -1:], encoded, keys, states)
            likely = predicted[:, -1].float().log_softmax(-1).view(batch, beams, -1)
            vocabulary = likely.shape[-1]
            scores, chosen = (scores[:, :, None] + likely).flatten(1).topk(beams)
            parents = (offsets + chosen // vocabulary).flatten()
            found = torch.cat((found[parents], (chosen % vocabulary).view(-1, 1)), dim=1)
            states = [(hidden[:, parents], cell[:, parents]) for hidden, cell in states]
            note_token()
        return found.view(batch, beams, -1)[:, 0, 1:]

    def prepare(self) -> None:
        """Lay each LSTM's weights out as one buffer again; call after every move, cast or load."""
        for module in self.modules():
            if isinstance(module, nn.LSTM):
                module.flatten_parameters()


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return GNMT(shape.vocabulary, shape.hidden, shape.layers, shape.dropout, shape.beams)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A sentence and its translation but for the last token, each (tokens,), and the translation."""
    source, target = (tokens.random(shape.vocabulary, shape.tokens, generator) for _ in range(2))
    return (source, torch.cat((torch.tensor([START]), target[:-1]))), target


def infer(network: GNMT, sentences: tuple[Tensor, Tensor]) -> Tensor:
    """Translations as long as the sentences, (batch, tokens)."""
    source, _ = sentences
    return network.translate(source, source.shape[1])


def compiled(network: GNMT) -> Sequence[nn.Module]:
    """Encoder and decoder, which decoding calls without the network around them."""
    return (network.encoder, network.decoder)
