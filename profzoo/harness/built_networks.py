"""Keeps a network that was built before a process was forked; each fork takes it instead of building it again."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from profzoo.harness import interface, step_loop

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings

# The network and the state of torch's generator after it was built, by all that the network depends on.
_kept: dict[str, tuple[nn.Module, torch.Tensor]] = {}


def keep_network(cell: "CellSettings", weights: Path | None) -> None:
    """Build the cell's network for forks, with one thread: a fork has no others, and could not use their pool."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        network = step_loop.build_network(cell, interface.load_functions(cell["module"]), weights)
    finally:
        torch.set_num_threads(threads)
    _kept[_key(cell, weights)] = network, torch.get_rng_state()


def take_network(cell: "CellSettings", model: interface.ModelFunctions, weights: Path | None) -> nn.Module:
    """Return the cell's network on the CPU, the kept one if it fits, with torch's generator as building leaves it."""
    kept = _kept.pop(_key(cell, weights), None)
    # Others would only take memory.
    _kept.clear()
    if not kept:
        return step_loop.build_network(cell, model, weights)
    torch.set_rng_state(kept[1])
    return kept[0]


def _key(cell: "CellSettings", weights: Path | None) -> str:
    return json.dumps([cell["module"], cell["shape"], cell["seed"], str(weights)], sort_keys=True)
