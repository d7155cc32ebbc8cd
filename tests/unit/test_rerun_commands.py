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
    assert {key: found[key] for key in ran if key not in LENGTH} == {key: ran[key] for key in ran if key not in LENGTH}
    changed = again(rerun_commands.format_run(words, "cudnn_benchmark=true batch=3"), phase)
    assert (changed["cudnn_benchmark"], changed["batch"]) == (True, 3)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("config", "cell"),
    [
        ({}, "lstm@bf16"),
        ({"settings": {"moe": {"module": "mymoe", "name": "it's"}}, "device": "cpu"}, "moe"),
        ({"settings": {"moe": {"module": "mymoe"}}}, "moe@bf16"),
        ({"data": {"source": "dataset", "name": "FakeData"}}, "vgg16"),
    ],
)
def test_trials_are_of_the_cell_too(config: dict, cell: str) -> None:
    """As Snakemake reads `--config`: a key, and its value as YAML."""
    ran = resolved(config, cell, "train")
    program, target, option, given = shlex.split(rerun_commands.trials_command(rerun_commands.run_arguments(cell, ran)))
    assert (program, target, option) == ("snakemake", "trials", "--config")
    key, _, value = given.partition("=")
    asked = configuration.normalise_config({key: yaml.safe_load(value)})
    (name,) = configuration.select_models(asked)
    found = settings.resolve_cell(name, "train", "time", asked)
    assert {key: found[key] for key in ran if key not in LENGTH} == {key: ran[key] for key in ran if key not in LENGTH}


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("config", "cell", "changes"),
    [
        ({}, "lstm", {"precision": "bf16", "workers": 4, "pin_memory": True}),
        ({"settings": {"moe": {"module": "mymoe", "name": "it's"}}, "device": "cpu"}, "moe", {"precision": "bf16"}),
        ({"settings": {"moe": {"module": "mymoe"}}}, "moe@bf16", {"pin_memory": True, "batch": 8}),
    ],
)
def test_a_comparison_is_of_the_cell_and_its_changed_settings(config: dict, cell: str, changes: dict) -> None:
    """As Snakemake reads `--config`: the reference side is the cell, and the candidate has the changes alone."""
    ran = resolved(config, cell, "train")
    words = " ".join(f"{key}={settings.setting_word(value)}" for key, value in changes.items())
    line = shlex.split(rerun_commands.comparison_command(rerun_commands.run_arguments(cell, ran), words))
    assert line[:3] == ["snakemake", "compare", "--config"]
    given = {key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in line[3:])}
    asked = configuration.normalise_config(given)
    (name,) = configuration.select_models(asked)
    assert asked["phases"] == ["train"] and asked["reference"] == "plain"
    candidate = settings.resolve_cell(f"{name}@{asked['candidate'][0]}", "train", "time", asked)
    for found, wanted in ((settings.resolve_cell(name, "train", "time", asked), ran), (candidate, ran | changes)):
        kept = ran.keys() - LENGTH
        assert {key: found[key] for key in kept} == {key: wanted[key] for key in kept}


def test_a_module_that_is_not_there_any_more_is_named_all_the_same(own: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = resolved({"settings": {"moe": {"module": "mymoe"}}}, "moe", "train")
    line = rerun_commands.run_arguments("moe", {**ran, "module": "gone"})
    assert line == "moe train batch=4 hidden=8 module=gone name=a"


def test_sidecars_that_say_too_little_have_no_line() -> None:
    assert not rerun_commands.can_be_typed({"workload": "trimmed", "precision": "fp32"})
