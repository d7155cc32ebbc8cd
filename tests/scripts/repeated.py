"""Trains a head on what a frozen encoder makes of a batch, and asks the encoder for the same again for a metric."""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).requires_grad_(False)
head = nn.Linear(16, 2)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
spread = 0.0
for _ in range(40):
    batch = torch.randn(8, 16)
    loss = nn.functional.cross_entropy(head(encoder(batch)), torch.zeros(8, dtype=torch.int64))
    loss.backward()
    spread += float(encoder(batch).std())
    optimizer.step()
    optimizer.zero_grad()
