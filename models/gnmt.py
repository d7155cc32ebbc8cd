"""GNMT: an LSTM encoder and decoder of eight layers each with attention; inference decodes by beam search.

Given whole sentences, every layer is one call of cuDNN: attention is asked by the decoder's bottom layer, and goes to
the layers above it. Decoding goes a token at a time, through all layers. With `feeding`, the bottom layer is given what
attention found a token before, as in the graph of AI Benchmark, and goes a token at a time in training as well.

That graph is tensorflow/nmt's `gnmt_v2` with greedy search: sentences end by a token, after at most twice as many as
the source has. Here a sentence that has ended is padded while the others go on, as no step waits for the GPU to say so.
Attention passes over padding, and the encoder reads it as any word.

Parameters, with a vocabulary of 32_000 and 1024 units (an LSTM has 4*1024*(inputs + 1024) + 8*1024):
  two embeddings            2*32_000*1024                                 =  65_536_000
  encoder, both ways        2*LSTM(1024)                                  =  16_793_600
  encoder, then 7           LSTM(2048) + 6*LSTM(1024)                     =  62_971_904
  decoder, bottom           LSTM(1024)                                    =   8_396_800
  decoder, 7 with context   7*LSTM(2048)                                  =  88_137_728
  attention                 2*1024*1024 + 2*1024 + 1                      =   2_099_201
  classifier                1024*32_000 + 32_000                          =  32_800_000
Operations of AI Benchmark's, with 20 words, 40 tokens and a vocabulary of 32_316:
  reading                   2*20*(4096*(2*2048 + 3072 + 6*2048) + 1024*1024)                  = 3_229_614_080
  writing                   2*40*(8*3072*4096 + 1024*1024 + 20*1024 + 1024*32_316)            = 10_785_914_880
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
REFERENCE = {
    "parameters": 281_798_657,
    "operations": 14_015_528_960,
    "difference": "it has one bias per gate, cuDNN two, and none in its classifier",
}
SHAPE = {
    "vocabulary": 32_000,
    "hidden": 1024,
    "layers": 8,
    "dropout": 0.2,
    "beams": 4,
    "length_norm": 0.0,  # Power by which the length of a hypothesis counts; 1 in tensorflow/nmt.
    "feeding": False,
    "padded": False,  # Sentences of several lengths, which end.
    "longest": 1,  # Tokens of a translation for each of the source.
}
ORIGINAL = {"vocabulary": 32_316, "beams": 1, "feeding": True, "padded": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "tokens": 20}, "inference": {"batch": 1, "tokens": 20}},
    # AI Benchmark only infers; training takes the paper's batch (section 8.2).
    "reference": {
        "train": {"batch": 128, "tokens": 20, **ORIGINAL},
        "inference": {"batch": 1, "tokens": 20, "longest": 2, **ORIGINAL},
    },
}
PADDING, START, END, WORDS = 0, 1, 2, 3  # Tokens from WORDS on are words, in sentences that end.
IGNORED = -100
State = tuple[Tensor, ...]


class Attention(nn.Module):
    """Additive attention with normalised weights (Bahdanau et al. 2015; Salimans and Kingma 2016)."""

    def __init__(self, hidden: int) -> None:
        """Size of queries and keys."""
        super().__init__()
        self.query, self.key = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.direction, self.bias = nn.Parameter(torch.randn(hidden)), nn.Parameter(torch.zeros(hidden))
        self.length = nn.Parameter(torch.ones(1))

    def forward(self, queries: Tensor, encoded: Tensor, keys: Tensor, padding: Tensor | None) -> Tensor:
        """Contexts (batch, steps, hidden) of queries; encoded and keys: (batch, words, hidden); padding: of words."""
        weights = self.length * self.direction / self.direction.norm()
        scores = torch.tanh(self.query(queries)[:, :, None] + keys[:, None] + self.bias) @ weights
        scores = scores if padding is None else scores.masked_fill(padding[:, None], float("-inf"))
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

    def __init__(self, vocabulary: int, hidden: int, layers: int, dropout: float, feeding: bool) -> None:
        """Sizes; the third and later layers are residual; feeding: the bottom layer takes in the context before."""
        super().__init__()
        self.feeding = feeding
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.bottom = nn.LSTM(2 * hidden if feeding else hidden, hidden, batch_first=True)
        self.attention = Attention(hidden)
        self.layers = nn.ModuleList(nn.LSTM(2 * hidden, hidden, batch_first=True) for _ in range(layers - 1))
        self.classifier = nn.Linear(hidden, vocabulary)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, words: Tensor, source: tuple[Tensor, Tensor, Tensor | None], states: Sequence[State] | None = None
    ) -> tuple[Tensor, list[State]]:
        """Scores, and the state of each layer afterwards; source: encoded words, keys and padding."""
        before: Sequence[State | None] = states or [None] * (1 + len(self.layers))
        flow, context, state = self._ask(self.dropout(self.embedding(words)), source, before[0])
        after = [state]
        for index, layer in enumerate(self.layers):
            output, state = layer(torch.cat((self.dropout(flow), context), dim=-1), before[index + 1])
            flow = output + flow if index else output
            after.append(state)
        return self.classifier(self.dropout(flow)), after

    def _ask(
        self, words: Tensor, source: tuple[Tensor, Tensor, Tensor | None], state: State | None
    ) -> tuple[Tensor, Tensor, State]:
        """Outputs of the bottom layer, the contexts, and the state, which with feeding has the last context, too."""
        if not self.feeding:
            asked, state = self.bottom(words, state)
            return asked, self.attention(asked, *source), state
        hidden, cell, context = state or (words.new_zeros(1, len(words), self.bottom.hidden_size),) * 3
        steps = []
        for word in words.split(1, dim=1):
            asked, (hidden, cell) = self.bottom(torch.cat((word, context.transpose(0, 1)), dim=-1), (hidden, cell))
            found = self.attention(asked, *source)
            context = found.transpose(0, 1)
            steps.append((asked, found))
        asked, found = (torch.cat(parts, dim=1) for parts in zip(*steps, strict=True))
        return asked, found, (hidden, cell, context)


class GNMT(nn.Module):
    """From (source (batch, words), target so far (batch, steps)) to scores of each next token."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """beams: hypotheses that decoding follows, 1 for greedy search."""
        super().__init__()
        sizes = (shape.vocabulary, shape.hidden, shape.layers, shape.dropout)
        self.encoder, self.decoder = Encoder(*sizes), Decoder(*sizes, shape.feeding)
        self.beams, self.length_norm = shape.beams, shape.length_norm
        self.padded, self.longest = shape.padded, shape.longest

    def forward(self, sentences: tuple[Tensor, Tensor]) -> Tensor:
        """Scores (batch, steps, vocabulary), the target being known."""
        source, target = sentences
        return self.decoder(target, self._read(source))[0]

    def _read(self, source: Tensor, times: int = 1) -> tuple[Tensor, Tensor, Tensor | None]:
        """Encoded words, keys and padding, each sentence so many times."""
        encoded = self.encoder(source).repeat_interleave(times, dim=0)
        padding = (source == PADDING).repeat_interleave(times, dim=0) if self.padded else None
        return encoded, self.decoder.attention.key(encoded), padding

    def translate(self, source: Tensor, steps: int) -> Tensor:
        """The best hypothesis of each sentence, (batch, steps), by beam search."""
        batch, beams = len(source), self.beams
        read = self._read(source, beams)
        found = torch.full((batch * beams, 1), START, device=source.device)
        # At first all beams are the same, so only one may go on.
        scores = torch.full((batch, beams), float("-inf"), device=source.device)
        scores[:, 0] = 0
        offsets = torch.arange(batch, device=source.device)[:, None] * beams
        states: list[State] | None = None
        for _ in range(steps):
            predicted, states = self.decoder(found[:, -1:], read, states)
            likely = predicted[:, -1].float().log_softmax(-1).view(batch, beams, -1)
            vocabulary = likely.shape[-1]
            if self.padded:
                ended = (found[:, -1] == END).view(batch, beams, 1)
                likely = likely.masked_fill(ended, float("-inf"))
                likely[..., END : END + 1].masked_fill_(ended, 0)
            likely = scores[:, :, None] + likely
            if self.length_norm:
                # Section 7. START stands for the token that is being chosen, or for the END that was.
                penalty = (((found != END).view(batch, beams, -1).sum(-1) + 5) / 6) ** self.length_norm
                likely = likely / penalty[:, :, None]
            scores, chosen = likely.flatten(1).topk(beams)
            scores = scores * penalty.gather(1, chosen // vocabulary) if self.length_norm else scores
            parents = (offsets + chosen // vocabulary).flatten()
            found = torch.cat((found[parents], (chosen % vocabulary).view(-1, 1)), dim=1)
            states = [tuple(part[:, parents] for part in state) for state in states]
            note_token()
        return found.view(batch, beams, -1)[:, 0, 1:]

    def prepare(self) -> None:
        """Lay each LSTM's weights out as one buffer again; call after every move, cast or load."""
        for module in self.modules():
            if isinstance(module, nn.LSTM):
                module.flatten_parameters()


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return GNMT(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A sentence and its translation but for the last token, each (tokens,), and the translation.

    Padded ones have from half the tokens to all of them, and translations end; what is behind their end is IGNORED.
    """
    first = WORDS if shape.padded else 0
    source, target = (first + tokens.random(shape.vocabulary - first, shape.tokens, generator) for _ in range(2))
    before = torch.cat((torch.tensor([START]), target[:-1]))
    if shape.padded:
        lengths = torch.randint(shape.tokens // 2, shape.tokens + 1, (2,), generator=generator)
        places, (read, written) = torch.arange(shape.tokens), lengths.tolist()
        source = source.masked_fill(places >= read, PADDING)
        before = before.masked_fill(places >= written, PADDING)
        target = target.masked_fill(places == written - 1, END).masked_fill(places >= written, IGNORED)
    return (source, before), target


def infer(network: GNMT, sentences: tuple[Tensor, Tensor]) -> Tensor:
    """Translations, (batch, longest * tokens)."""
    source, _ = sentences
    return network.translate(source, network.longest * source.shape[1])


def compiled(network: GNMT) -> Sequence[nn.Module]:
    """Encoder and decoder, which decoding calls without the network around them."""
    return (network.encoder, network.decoder)
