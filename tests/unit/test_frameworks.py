"""script_harness: what it finds of scripts that use a framework, each where the framework is installed."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.unit.test_script_runs import lines_of, run_cases

EVENTS = ("batches", "forward calls", "backward passes", "optimizer steps")
STEPS = 6


class Expected(NamedTuple):
    """What a script comes to.

    per_step: batches, forward calls, backward passes and optimizer steps. made: words of the lines that make the model,
    optimizer and loader, and that call the model; empty where the framework does it.
    """

    package: str
    step: str
    network: str
    batch: int
    per_step: tuple[int, int, int, int]
    made: Mapping[str, str]
    phase: str = "train"


EXPECTED = {
    # An evaluation comes first, and both take metrics, which are modules with a hash of their own.
    "lightning_fit": Expected(
        "pytorch_lightning", "a step of AdamW", "Classifier", 16, (2, 2, 2, 1),
        {"model": "trainer.fit(", "optimizer": "AdamW(", "loader": "trainer.fit(", "call": "cross_entropy(self("},
    ),
    "transformers_fit": Expected(
        "transformers", "a step of AdamW", "GPT2LMHeadModel", 8, (2, 2, 2, 1), {"model": "model = GPT2"}
    ),
    # Each word of a text is a step, and has its row of each of three prompts.
    "transformers_generate": Expected(
        "transformers", "a call of GPT2LMHeadModel", "GPT2LMHeadModel", 3, (0, 1, 0, 0), {"model": "model = GPT2"}, "inference"
    ),
    # It makes loaders and optimizers anew of those that the script makes.
    "accelerate_loop": Expected(
        "accelerate", "a step of AdamW", "Sequential", 32, (4, 4, 4, 1),
        {"model": "model = nn", "optimizer": "AdamW(", "loader": "= DataLoader(", "call": "(model(inputs)"},
    ),
    # A batch is one graph whose nodes are those of sixteen.
    "geometric_graphs": Expected(
        "torch_geometric", "a step of Adam", "GraphNetwork", 16, (1, 1, 1, 1),
        {"model": "= GraphNetwork", "optimizer": "Adam(", "loader": "= DataLoader(", "call": "(model(graphs)"},
    ),
}  # fmt: skip


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(EXPECTED[name].package) is not None


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    cases = {
        name: (f"frameworks/{name}.py", f"window={STEPS} phase={one.phase}")
        for name, one in EXPECTED.items()
        if is_installed(name)
    }
    return run_cases(tmp_path_factory.mktemp("frameworks"), cases, cases)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_framework_s_loop_is_measured_as_one_written_out(request: pytest.FixtureRequest, name: str) -> None:
    if not is_installed(name):
        pytest.skip(f"{EXPECTED[name].package} is not installed")
    results, expected = request.getfixturevalue("found"), EXPECTED[name]
    facts = results[name]
    assert isinstance(facts, dict), (facts, results["printed"][-3000:])
    script = facts["script"]
    per_step = {event: count for event, count in zip(EVENTS, expected.per_step, strict=True) if count}
    assert (script["step"], script["per_step"], script["regular_share"]) == (expected.step, per_step, 1)
    assert (script["networks"], facts["steps"]) == ([expected.network], STEPS)
    assert (facts["batch"], facts["items"]) == (expected.batch, expected.batch * STEPS)
    assert script["loss_is_finite"] and (facts["loss"] is not None) == (expected.phase == "train")
    made = {one["kind"]: f"{Path(one['file']).name}:{one['line']}" for one in script["made"]}
    written = {kind: lines_of(f"frameworks/{name}.py", words) for kind, words in expected.made.items()}
    assert {kind: {f"frameworks/{place}"} for kind, place in made.items()} == written
