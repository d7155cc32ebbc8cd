"""A network that was kept for forks is the one that a process would have built itself, with torch's generator after it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from profzoo import run
from profzoo.harness import built_networks, interface, step_loop
from tests import zoo


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def resolved(name: str, **changed: Any) -> Any:
    shape = {**zoo.TINY[name], **changed}
    return run.resolve_words(name, "train", "time", [f"{key}={value}" for key, value in shape.items()])


@pytest.mark.parametrize("name", ["mobilenetv2", "lstm", "gpt", "icnet"])
def test_a_kept_network_is_the_one_that_would_be_built(name: str) -> None:
    cell = resolved(name)
    model = interface.load_functions(cell["module"])
    alone, state = step_loop.build_network(cell, model, None).state_dict(), torch.get_rng_state()
    built_networks.keep_network(cell, None)
    assert torch.get_num_threads() == 2
    torch.manual_seed(99)
    kept = built_networks.take_network(cell, model, None).state_dict()
    assert kept.keys() == alone.keys() and all(torch.equal(kept[key], alone[key]) for key in alone)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_cell_with_another_seed_or_shape_builds_its_own() -> None:
    for changed in ({"seed": 5}, {"sequence_length": 8}, {"hidden": 8}):
        cell = resolved("lstm", **changed)
        model = interface.load_functions(cell["module"])
        built_networks.keep_network(resolved("lstm"), None)
        (kept, _) = next(iter(built_networks._kept.values()))
        network = built_networks.take_network(cell, model, None)
        # The kept one takes no memory any more, and is not given to a second cell.
        assert network is not kept and not built_networks._kept


def test_settings_of_the_step_take_the_kept_network() -> None:
    built_networks.keep_network(resolved("lstm"), None)
    (kept, _) = next(iter(built_networks._kept.values()))
    cell = resolved("lstm", batch=2, precision="bf16", compile="true")
    assert built_networks.take_network(cell, interface.load_functions(cell["module"]), None) is kept
