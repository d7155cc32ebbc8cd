"""Takes more cores than it was given."""

import torch
from program import *  # noqa: F403

torch.set_num_threads(2)
