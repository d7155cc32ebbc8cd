"""Lines to type: each parses and resolves to the settings of the cell that it is about, a user's own model too."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from profzoo import run
from profzoo.cell import rerun_commands, settings
from profzoo.config import configuration

OWN = """
SHAPE = {"hidden": 8, "name": "a"}
WORKLOADS = {"trimmed": {"train": {"batch": 4}, "inference": {"batch": 2}}}


def build(shape): ...
def sample(shape, generator): ...
"""
# Of no effect on what is run, only on how long.
LENGTH = {"window", "warmup", "samples", "epochs", "steps"}


def resolved(config: dict[str, Any], cell: str, phase: str) -> dict[str, Any]:
    return settings.resolve_cell(cell, phase, "time", configuration.normalise_config(config))


def again(line: str, phase: str) -> dict[str, Any]:
    """What a line runs, by the program's own reading of it."""
    words = shlex.split(line)
    place = words.index("models.run") + 1
    options = run._parser().parse_intermixed_args(words[place:])
    return run.resolve_words(options.model, options.phase, "time", options.settings)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mymoe.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("config", "cell", "phase", "words"),
    [
        ({}, "lstm", "train", "lstm train"),
        ({}, "lstm@bf16", "train", "lstm@bf16 train"),
        ({"device": "cpu", "window": 7}, "lstm", "train", "lstm train device=cpu"),
        ({"settings": {"lstm": {"hidden": 16}}}, "lstm@bf16+graph", "train", "lstm@bf16+graph train hidden=16"),
        ({"settings": {"moe": {"module": "mymoe"}}}, "moe", "train", "moe train module=mymoe"),
        ({"settings": {"moe": {"module": "mymoe"}}}, "moe@tf32", "inference", "moe@tf32 inference module=mymoe"),
        ({"settings": {"moe": {"module": "mymoe", "name": "two words"}}}, "moe", "train",
         "moe train module=mymoe 'name=two words'"),
        # A variant of the configuration's own has no name on the command line.
        ({"settings": {"moe": {"module": "mymoe"}}, "variants": {"wide": {"hidden": 32}}}, "moe@wide", "train",
         "moe train hidden=32 module=mymoe"),
        ({"data": {"source": "dataset", "name": "FakeData"}}, "vgg16", "train",
         "vgg16 train data.name=FakeData data.source=dataset"),
        ({"gpus": 2}, "lstm", "train", "lstm train gpus=2"),
    ],
)  # fmt: skip
def test_a_line_runs_the_cell_again(config: dict, cell: str, phase: str, words: str) -> None:
    ran = resolved(config, cell, phase)
    assert rerun_commands.run_arguments(cell, ran) == words
    found = again(rerun_commands.format_run(words), phase)
    assert same(found, ran)
    changed = again(rerun_commands.format_run(words, "cudnn_benchmark=true batch=3"), phase)
    assert (changed["cudnn_benchmark"], changed["batch"]) == (True, 3)


def read_back(words: list[str]) -> dict[str, Any]:
    """A configuration as Snakemake reads `--config`: keys, and their values as YAML."""
    given = {key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in words)}
    return configuration.normalise_config(given)


def same(found: dict[str, Any], ran: dict[str, Any]) -> bool:
    return all(found[key] == ran[key] for key in ran.keys() - LENGTH)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("config", "cell", "changes"),
    [
        ({}, "lstm@bf16", {}),
        ({}, "lstm", {"precision": "bf16", "workers": 4, "pin_memory": True}),
        ({"settings": {"moe": {"module": "mymoe", "name": "it's"}}, "device": "cpu"}, "moe", {"precision": "bf16"}),
        ({"settings": {"moe": {"module": "mymoe"}}}, "moe@bf16", {"pin_memory": True, "batch": 8}),
        ({"data": {"source": "dataset", "name": "FakeData"}}, "vgg16", {"batch": 3}),
    ],
)
def test_trials_and_comparisons_are_of_the_cell_too(config: dict, cell: str, changes: dict) -> None:
    """The reference side of a comparison is the cell, and the candidate has the changes alone."""
    ran = resolved(config, cell, "train")
    arguments = rerun_commands.run_arguments(cell, ran)
    line = shlex.split(rerun_commands.trials_command(arguments))
    assert line[:3] == ["snakemake", "trials", "--config"] and len(line) == 4
    asked = read_back(line[3:])
    (name,) = configuration.select_models(asked)
    assert same(settings.resolve_cell(name, "train", "time", asked), ran)
    if not changes:
        return
    words = " ".join(f"{key}={settings.setting_word(value)}" for key, value in changes.items())
    line = shlex.split(rerun_commands.comparison_command(arguments, words))
    assert line[:3] == ["snakemake", "compare", "--config"]
    asked = read_back(line[3:])
    (name,) = configuration.select_models(asked)
    assert asked["phases"] == ["train"] and asked["reference"] == "plain"
    assert same(settings.resolve_cell(name, "train", "time", asked), ran)
    candidate = settings.resolve_cell(f"{name}@{asked['candidate'][0]}", "train", "time", asked)
    assert same(candidate, ran | changes)


def test_a_module_that_is_not_there_any_more_is_named_all_the_same(own: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = resolved({"settings": {"moe": {"module": "mymoe"}}}, "moe", "train")
    line = rerun_commands.run_arguments("moe", {**ran, "module": "gone"})
    assert line == "moe train batch=4 hidden=8 module=gone name=a"


def test_sidecars_that_say_too_little_have_no_line() -> None:
    assert not rerun_commands.can_be_typed({"workload": "trimmed", "precision": "fp32"})
