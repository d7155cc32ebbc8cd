"""harness/settings: precedence key by key, the window's arithmetic, and words that lead back to every cell."""

import itertools

import pytest

from profzoo import run
from profzoo.cell import registry, settings
from profzoo.config import configuration as config
from profzoo.errors import ConfigError

TOOLS = ("ncu", "nsys", "torch", "time")
VARIANTS = sorted(config.normalise_config({})["variants"])


def cell(name: str = "lstm", phase: str = "train", tool: str = "time", **given: object) -> dict:
    return settings.resolve_cell(name, phase, tool, config.normalise_config(given))


@pytest.mark.parametrize(
    ("given", "phase", "sequence_length", "batch"),
    [
        ({}, "train", 256, 10),
        ({"workload": "reference"}, "inference", 1024, 100),
        ({"settings": {"lstm": {"workload": "reference"}}}, "train", 1024, 10),
        ({"workload": "reference", "settings": {"lstm": {"sequence_length": "8", "batch": "2"}}}, "inference", 8, 2),
        ({"workload": "reference", "batch": 3}, "inference", 1024, 3),
    ],
)
def test_workload(given: dict, phase: str, sequence_length: int, batch: int) -> None:
    resolved = cell(phase=phase, **given)
    assert (resolved["shape"]["sequence_length"], resolved["batch"]) == (sequence_length, batch)


@pytest.mark.parametrize("where", ["settings", "variants"])
def test_a_part_of_data_leaves_the_rest_as_it_is(where: str) -> None:
    changes = {"settings": {"unet": {"data": {"root": "mine"}}}, "variants": {"x": {"data": {"root": "mine"}}}}
    given = {"data": {"source": "folder", "root": "all"}, where: changes[where]}
    data = cell("unet@x" if where == "variants" else "unet", **given)["data"]
    assert (data["source"], data["root"]) == ("folder", "mine")


@pytest.mark.parametrize(
    ("given", "tool", "window", "steps", "samples"),
    [
        ({}, "ncu", 1, 4, 40),
        ({}, "nsys", 10, 13, 130),
        ({}, "torch", 3, 7, 70),
        ({"window": 5}, "nsys", 5, 8, 80),
        ({"window": "null", "nsys": {"window": 6}}, "nsys", 6, 9, 90),
        ({"settings": {"lstm": {"window": 2}}, "window": 5}, "time", 2, 5, 50),
        ({"epochs": 3}, "time", 20, 23, 80),
        ({"accumulate": 4}, "nsys", 10, 13, 520),
        ({"samples": 1000, "epochs": 3, "batch": 8, "window": "rest"}, "time", 372, 375, 1000),
        ({"samples": 99, "batch": 10, "window": "rest", "warmup": 0}, "time", 9, 9, 99),
        ({"samples": 200, "window": "rest", "torch": {"wait": 1, "warmup": 2, "repeat": 2}}, "torch", 5, 19, 200),
    ],
)
def test_window_steps_and_samples(given: dict, tool: str, window: int, steps: int, samples: int) -> None:
    resolved = cell(tool=tool, **given)
    assert (resolved["window"], resolved["steps"], resolved["samples"]) == (window, steps, samples)
    assert resolved["epochs"] * (samples // resolved["batch"]) >= steps


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({"samples": 30, "window": 1}, 40),
        ({"samples": 30, "window": "rest"}, 40),
        ({"samples": 30, "window": 10, "epochs": 2}, 70),
        ({"samples": 9, "window": 1, "warmup": 0}, 10),
    ],
)
def test_the_samples_that_are_said_to_be_needed_are_enough(given: dict, needed: int) -> None:
    with pytest.raises(ConfigError, match=f"set samples to {needed} or more"):
        cell(**given)
    assert cell(**{**given, "samples": needed})["samples"] == needed
    with pytest.raises(ConfigError):
        cell(**{**given, "samples": needed - 1})


FAKE = {"source": "dataset", "name": "FakeData", "arguments": {"size": 9, "image_size": [3, 4, 4]}}
GIVENS = [
    config.normalise_config(given)
    for given in (
        {},
        {"workload": "reference", "batch": 3},
        {"data": FAKE, "threads": 2, "samples": 900, "window": "rest"},
    )
]
ONE_PHASE = {
    **{f"lstm@{variant}": ["train"] for variant in ("accumulate", "checkpoint", "clip", "ema")},
    **{f"lstm@{variant}": ["inference"] for variant in ("fp8", "int8")},
}


@pytest.mark.parametrize("name", [*registry.shipped_models(), *(f"lstm@{variant}" for variant in VARIANTS)])
def test_words_lead_back_to_every_cell(name: str) -> None:
    """Each tool with another configuration, and the baseline with all."""
    pairs = [*zip(TOOLS, GIVENS, strict=False), *(("time", given) for given in GIVENS)]
    for phase, (tool, given) in itertools.product(ONE_PHASE.get(name, settings.PHASES), pairs):
        resolved = settings.resolve_cell(name, phase, tool, given)
        model, same_phase, *words = settings.setting_words(resolved)
        assert (model, same_phase) == (name.partition("@")[0], phase)
        assert run.resolve_words(model, phase, tool, words) == resolved


def test_words_of_the_profiler() -> None:
    resolved = cell(tool="torch", torch={"stacks": True, "repeat": 2, "wait": 1})
    words = settings.setting_words(resolved)
    assert "profiler.stacks=true" in words and run.resolve_words("lstm", "train", "torch", words[2:]) == resolved


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        ([], {}),
        (["a=1", "a=2"], {"a": "2"}),
        (["kernel=x=y"], {"kernel": "x=y"}),
        (["data.root=a.b/c", "data.name="], {"data": {"root": "a.b/c", "name": ""}}),
    ],
)
def test_parse(words: list[str], parsed: dict) -> None:
    assert settings.parse_words(words) == parsed


def test_keys_are_sorted_so_that_jobs_compare_equal() -> None:
    resolved = cell(tool="torch", data={"source": "synthetic"})
    for mapping in (resolved, resolved["shape"], resolved["profiler"]):
        assert list(mapping) == sorted(mapping)


def test_settings_that_came_later_are_left_out_where_they_change_nothing() -> None:
    """Results from before they existed stay valid."""
    for phase in ("train", "inference"):
        found = cell(phase=phase)
        assert not {*settings.LATER} & {*found}
        assert {*found["data"]} == {"arguments", "name", "root", "source"}
    given = cell(clip=1.0, accumulate=2, data={"source": "text", "root": "texts", "test": 0.1})
    assert (given["clip"], given["accumulate"], given["data"]["test"]) == (1.0, 2, 0.1)
    assert given["data"]["vocabulary"]
