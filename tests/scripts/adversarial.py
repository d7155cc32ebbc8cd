"""Two networks with an optimizer each: three steps of the critic for each step of the generator."""

import sys

import torch
from torch import nn

torch.set_num_threads(1)
if len(sys.argv) > 1:
    torch.set_default_device(sys.argv[1])


class Generator(nn.Sequential):
    pass


class Critic(nn.Sequential):
    pass


generator, critic = Generator(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)), Critic(nn.Linear(8, 1))
make, judge = torch.optim.Adam(generator.parameters()), torch.optim.RMSprop(critic.parameters())
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 30):
    for _ in range(3):
        judge.zero_grad()
        (critic(generator(torch.randn(2, 4)).detach()).mean() - critic(torch.randn(2, 8)).mean()).backward()
        judge.step()
    make.zero_grad()
    (-critic(generator(torch.randn(2, 4))).mean()).backward()
    make.step()
