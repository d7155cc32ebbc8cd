"""It makes a network and an optimizer, and uses neither."""

import torch
from torch import nn

optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters())
print(torch.ones(2) + 1)
