"""Schema, configuration and settings: coercion, defaults, precedence, steps, and one clear line for every mistake."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from profzoo.cell import schema, settings
from profzoo.config import configuration
from profzoo.document import columns as document_columns
from profzoo.document import config as document_config
from profzoo.document import sets as document_sets
from profzoo.errors import ConfigError
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.tools.nsys import command as nsys

PROJECT = Path(__file__).parents[2]


def leaves(part: dict, prefix: str = "") -> Iterator[tuple[str, dict]]:
    """Every key of the schema, nested ones after a dot."""
    for key, value in part["properties"].items():
        yield f"{prefix}{key}", value
        if "properties" in value:
            yield from leaves(value, f"{prefix}{key}.")


def test_every_key_says_what_it_does_and_has_a_default_that_fits() -> None:
    for key, part in leaves(schema.load_schema()):
        assert part["description"].endswith("."), key
        if "properties" not in part:
            Draft202012Validator(part).validate(part["default"])


def test_pages_are_those_of_what_is_declared() -> None:
    sets = document_sets.write_sets_page(configuration.normalise_config({})["ncu"]["sets"], ncu_costs.load_costs())
    assert (PROJECT / "docs/reference/sections.md").read_text() == sets
    assert (PROJECT / "config/README.md").read_text() == document_config.write_config_page(schema.load_schema())
    assert (PROJECT / "docs/reference/columns.md").read_text() == document_columns.page()


def test_normalising_twice_is_normalising_once() -> None:
    once = configuration.normalise_config({"tool": "nsys", "batch": "4", "nsys": {"reports": ["gpukernsum"]}})
    assert configuration.normalise_config(once) == once
    assert once["tool"] == ["nsys"] and once["batch"] == 4 and once["nsys"]["reports"] == ["cuda_gpu_kern_sum"]


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({"compile": "true"}, "compile", True),
        ({"batch": "null"}, "batch", None),
        ({"window": "rest"}, "window", "rest"),
        ({"window": "7"}, "window", 7),
        ({"phases": "train"}, "phases", ["train"]),
        ({"tool": "ncu,nsys"}, "tool", ["ncu", "nsys"]),
    ],
)
def test_strings_of_the_command_line_become_what_they_mean(given: dict, key: str, value: object) -> None:
    assert configuration.normalise_config(given)[key] == value


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"tol": 1}, "unknown key 'tol' (value 1): did you mean 'tool'?"),
        ({"ncu": {"sett": "full"}}, "unknown key 'ncu.sett' (value 'full'): did you mean 'set'?"),
        ({"batch": "x"}, "batch = 'x': valid are: auto or a whole number"),
        ({"ncu": {"launches": "distnct"}}, "ncu.launches = 'distnct': did you mean 'distinct'? or a whole number"),
        ({"ncu": {"launches": 0}}, "ncu.launches = 0 is too small: at least 1"),
        ({"settings": {"lstm": {"sequence_len": 3}}}, "unknown key 'settings.lstm.sequence_len' (value 3): did you"),
        ({"settings": {"lsm": {}}}, "unknown model 'lsm': did you mean 'lstm'?"),
        ({"settings": {"mine": {"module": "no.such"}}}, "settings.mine.module = 'no.such' cannot be found"),
        ({"nsys": {"delay": 3}}, "nsys.delay is for whole runs"),
        ({"nsys": {"traces": ["cuda"]}}, "nsys.capture = 'window' finds the window by NVTX"),
        ({"nsys": {"reports": ["cuda_sum"]}}, "nsys.reports holds 'cuda_sum'"),
        ({"data": {"source": "foldr"}}, "data.source = 'foldr': did you mean 'folder'?"),
        ({"tool": []}, "tool is empty"),
    ],
)
def test_a_mistake_is_one_line(given: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        configuration.normalise_config(given)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_models_by_name_group_variant_and_mapping() -> None:
    given = configuration.normalise_config({"models": "super-resolution,lstm@bf16"})
    assert configuration.select_models(given) == ["srcnn", "srgan", "lstm@bf16"]
    mapped = configuration.normalise_config({"models": {"lstm": {"batch": 3}}})
    assert configuration.select_models(mapped) == ["lstm"] and mapped["settings"] == {"lstm": {"batch": 3}}
    with pytest.raises(ConfigError, match="did you mean 'unet'"):
        configuration.select_models(configuration.normalise_config({"models": "unt"}))


def test_precedence_of_settings() -> None:
    def found(key: str, given: dict, model: str = "lstm", tool: str = "time") -> int:
        return settings.resolve_cell(model, "train", tool, configuration.normalise_config(given))[key]

    assert found("batch", {}) == 10 and found("batch", {"batch": 3}) == 3
    assert found("batch", {"batch": 3, "settings": {"lstm": {"batch": 4}}}) == 4
    given = {"settings": {"lstm": {"batch": 4}}, "variants": {"big": {"batch": 64}}}
    assert found("batch", given, "lstm@big") == 64
    # The window is the tool's unless set.
    assert [found("window", {}, tool=tool) for tool in ("ncu", "nsys", "torch", "time")] == [1, 10, 3, 20]
    assert found("window", {"window": 4}, tool="ncu") == 4


def test_rest_is_what_samples_and_epochs_leave() -> None:
    given = configuration.normalise_config({"samples": 1000, "epochs": 3, "batch": 8, "warmup": 5, "window": "rest"})
    cell = settings.resolve_cell("mobilenetv2", "train", "nsys", given)
    assert (cell["window"], cell["steps"]) == (370, 375)
    few = configuration.normalise_config({"samples": 16, "batch": 8, "window": 1})
    with pytest.raises(ConfigError, match="make 2 steps, warm-up and window need 4: set samples to 32 or more"):
        settings.resolve_cell("mobilenetv2", "train", "ncu", few)


@pytest.mark.parametrize("tool", ["ncu", "nsys", "torch", "time"])
def test_words_lead_back_to_the_cell(tool: str) -> None:
    from profzoo import run

    given = configuration.normalise_config({"settings": {"lstm": {"hidden": 32, "packed": True}}, "seed": 3})
    cell = settings.resolve_cell("lstm@bf16", "inference", tool, given)
    model, phase, *words = settings.setting_words(cell)
    assert run.resolve_words(model, phase, tool, words) == cell


def test_nsys_options_in_the_words_of_the_tool_that_is_there() -> None:
    old = "--gpu-metrics-device=\n--capture-range="
    assert nsys.adapt_options(["--gpu-metrics-devices=cuda-visible"], old, gpu=True) == ["--gpu-metrics-device=all"]
    with pytest.raises(ConfigError, match="offers no --pytorch"):
        nsys.adapt_options(["--pytorch=autograd-nvtx"], old, gpu=True)
    by_nvtx = ["--capture-range=nvtx", "--nvtx-capture=profzoo_window@profzoo"]
    assert nsys.adapt_options([nsys.GPU_CAPTURE], old, gpu=False) == by_nvtx
    # Report names of old tools.
    assert nsys.offered_names(["cuda_gpu_kern_sum"], "  gpukernsum[:base] -- Kernels") == ["gpukernsum"]
    assert nsys.offered_names(["cuda_gpu_kern_sum"], "  cuda_gpu_kern_sum[:base]") == ["cuda_gpu_kern_sum"]


def test_targets_that_cannot_be_are_named() -> None:
    given = configuration.normalise_config({})
    right = ["-n", "results/lstm/train.ncu.roofline.csv", "--report", "results/x/y.html"]
    configuration.check_targets(right, "results", given)
    with pytest.raises(ConfigError, match="unknown phase 'trian'; did you mean 'train'"):
        configuration.check_targets(["results/lstm/trian.ncu.csv"], "results", given)
