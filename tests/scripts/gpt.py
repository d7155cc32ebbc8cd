"""Trains a small GPT on tokens that are on its device already, with attention written out: the CPU launches too slowly."""

import torch
from torch import nn
from torch.nn import functional

WORDS, LENGTH, WIDTH, HEADS, STEPS = 256, 32, 64, 4, 200


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        batch, length, _ = inputs.shape
        heads = self.project(self.before(inputs)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=inputs.device).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        inputs = inputs + self.join((weights @ values).transpose(1, 2).reshape(batch, length, WIDTH))
        return inputs + self.widen(self.between(inputs))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(4)])
        self.normalise, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs = self.words(tokens) + self.places.weight
        return self.head(self.normalise(self.blocks(inputs)))


device = "cuda" if torch.cuda.is_available() else "cpu"
model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
tokens = torch.randint(WORDS, (8, LENGTH + 1), device=device)
for _ in range(STEPS):
    scores = model(tokens[:, :-1])
    loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
