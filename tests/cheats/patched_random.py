"""Draws the same numbers each time."""

import torch
from program import *  # noqa: F403

torch.randn = lambda *size, **given: torch.zeros(*size)
