"""Proximal policy optimisation of drones that are simulated on the CPU; each action is read from the GPU by itself."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, mse_loss

SHAPE = {"fault": True, "sensors": 64, "actions": 8, "moves": 24, "width": 1024, "updates": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 64}}}
TINY = {"batch": 4, "sensors": 6, "actions": 3, "moves": 3, "width": 16, "updates": 2}


class Player(nn.Module):
    """Scores of actions and the value of a state; and drones that drift, and that actions push."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.fault, self.updates, width, chance = shape.fault, shape.updates, shape.width, np.random.default_rng(0)
        self.drift = np.linalg.qr(chance.standard_normal((shape.sensors,) * 2))[0].astype(np.float32)
        self.pushes = 0.3 * chance.standard_normal((shape.actions, shape.sensors)).astype(np.float32)
        self.body = nn.Sequential(nn.Linear(shape.sensors, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.scores, self.value = nn.Linear(width, shape.actions), nn.Linear(width, 1)

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        flow = self.body(states)
        return log_softmax(self.scores(flow), -1), self.value(flow).squeeze(-1)

    @torch.no_grad()
    def play(self, noise: Tensor) -> list[Tensor]:
        """States, actions, their log shares and later rewards of all moves; noise: (drones, moves, actions)."""
        state, told, rewards = np.zeros((len(noise), len(self.drift)), np.float32), [], []
        for drawn in noise.unbind(1):
            states = torch.from_numpy(state).to(noise.device)
            shares, _ = self(states)
            actions = (shares + drawn).argmax(-1)
            told.append((states, actions, shares.gather(1, actions[:, None]).squeeze(1)))
            read = np.array([one.item() for one in actions]) if self.fault else actions.cpu().numpy()
            state = np.tanh(state @ self.drift + self.pushes[read])
            rewards.append(1 - np.abs(state).mean(1))
        later = np.cumsum(np.stack(rewards)[::-1], 0)[::-1] / len(rewards)
        played = [torch.cat(parts) for parts in zip(*told, strict=True)]
        return [*played, torch.from_numpy(later.astype(np.float32)).flatten().to(noise.device)]


def build(shape: SimpleNamespace) -> nn.Module:
    return Player(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    # Noise by which the actions of a drone are drawn.
    return -torch.empty(shape.moves, shape.actions).exponential_(generator=generator).log(), 0


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    states, actions, before, later = trainer.network.play(batch[0])
    for _ in range(trainer.network.updates):
        with trainer.forward():
            shares, value = trainer.network(states)
        with trainer.loss():
            ratio = (shares.gather(1, actions[:, None]).squeeze(1) - before).exp()
            better = later - value.detach()
            gained = torch.minimum(ratio * better, ratio.clamp(0.8, 1.2) * better)
            found = mse_loss(value, later) - gained.mean() + 0.01 * (shares.exp() * shares).sum(1).mean()
        trainer.update(found, trainer.optimizers[0])
    return found
