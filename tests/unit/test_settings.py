"""Schema, configuration and settings: coercion, defaults, precedence, steps, and one clear line for every mistake."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from profzoo import schema
from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.config import unknown_targets
from profzoo.document import columns as document_columns
from profzoo.document import config as document_config
from profzoo.document import sets as document_sets
from profzoo.errors import ConfigError
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.tools.nsys import command as nsys

PROJECT = Path(__file__).parents[2]


def leaves(part: dict, prefix: str = "") -> Iterator[tuple[str, dict]]:
    """Every key of the schema, nested ones after a dot."""
    for key, value in part["properties"].items():
        yield f"{prefix}{key}", value
        if "properties" in value:
            yield from leaves(value, f"{prefix}{key}.")


@pytest.mark.parametrize(("key", "part"), list(leaves(schema.load_schema())))
def test_every_key_says_what_it_does_and_has_a_default_that_fits(key: str, part: dict) -> None:
    assert part["description"].endswith(".")
    if "properties" not in part:
        Draft202012Validator(part).validate(part["default"])


def test_the_page_of_the_configuration_is_the_schema() -> None:
    assert (PROJECT / "config/README.md").read_text() == document_config.write_config_page(schema.load_schema())


def test_the_page_of_the_section_sets_is_what_is_shipped_and_measured() -> None:
    page = document_sets.write_sets_page(config.normalise_config({})["ncu"]["sets"], ncu_costs.load_costs())
    assert (PROJECT / "docs/reference/sections.md").read_text() == page


def test_the_page_of_the_columns_is_what_is_declared() -> None:
    assert (PROJECT / "docs/reference/columns.md").read_text() == document_columns.page()


def test_normalising_twice_is_normalising_once() -> None:
    once = config.normalise_config({"tool": "nsys", "batch": "4", "nsys": {"reports": ["gpukernsum"]}})
    assert config.normalise_config(once) == once
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
    assert config.normalise_config(given)[key] == value


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"tol": 1}, "unknown key 'tol' (value 1): did you mean 'tool'?"),
        ({"ncu": {"sett": "full"}}, "unknown key 'ncu.sett' (value 'full'): did you mean 'set'?"),
        ({"batch": "x"}, "batch = 'x': valid are: auto or a whole number"),
        ({"ncu": {"launches": "distnct"}}, "ncu.launches = 'distnct': did you mean 'distinct'? or a whole number"),
        ({"ncu": {"launches": 0}}, "ncu.launches = 0 is too small: at least 1"),
        ({"ncu": {"set": "rofline"}}, "ncu.set = 'rofline': did you mean 'roofline'?"),
        (
            {"settings": {"lstm": {"sequence_len": 3}}},
            "unknown key 'settings.lstm.sequence_len' (value 3): did you mean",
        ),
        ({"settings": {"lsm": {}}}, "unknown model 'lsm': did you mean 'lstm'?"),
        ({"settings": {"mine": {"module": "no.such"}}}, "settings.mine.module = 'no.such' cannot be found"),
        ({"ncu": {"replay": "range"}}, "ncu.replay = 'range' measures whole ranges: set ncu.launches to all"),
        ({"ncu": {"extra": ["--set=full"]}}, "ncu.extra holds --set, which the workflow sets itself"),
        ({"ncu": {"sets": {"mine": {"launches": 3}}}}, "ncu.sets.mine collects nothing"),
        ({"nsys": {"delay": 3}}, "nsys.delay is for whole runs"),
        ({"nsys": {"traces": ["cuda"]}}, "nsys.capture = 'window' finds the window by NVTX"),
        ({"nsys": {"reports": ["cuda_sum"]}}, "nsys.reports holds 'cuda_sum'"),
        ({"data": {"source": "foldr"}}, "data.source = 'foldr': did you mean 'folder'?"),
        ({"tool": []}, "tool is empty"),
    ],
)
def test_a_mistake_is_one_line(given: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.normalise_config(given)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_models_by_name_group_variant_and_mapping() -> None:
    assert config.select_models(config.normalise_config({"models": "super-resolution,lstm@bf16"})) == [
        "srcnn",
        "srgan",
        "lstm@bf16",
    ]
    mapped = config.normalise_config({"models": {"lstm": {"batch": 3}}})
    assert config.select_models(mapped) == ["lstm"] and mapped["settings"] == {"lstm": {"batch": 3}}
    with pytest.raises(ConfigError, match="did you mean 'unet'"):
        config.select_models(config.normalise_config({"models": "unt"}))


def test_precedence_of_settings() -> None:
    def batch(given: dict, model: str = "lstm") -> int:
        return settings.resolve_cell(model, "train", "time", config.normalise_config(given))["batch"]

    assert batch({}) == 10
    assert batch({"batch": 3}) == 3
    assert batch({"batch": 3, "settings": {"lstm": {"batch": 4}}}) == 4
    assert batch({"settings": {"lstm": {"batch": 4}}, "variants": {"big": {"batch": 64}}}, "lstm@big") == 64


def test_the_window_is_the_tools_unless_set() -> None:
    def window(tool: str, given: dict) -> int:
        return settings.resolve_cell("lstm", "train", tool, config.normalise_config(given))["window"]

    assert [window(tool, {}) for tool in ("ncu", "nsys", "torch", "time")] == [1, 10, 3, 20]
    assert window("ncu", {"window": 4}) == 4


def test_rest_is_what_samples_and_epochs_leave() -> None:
    given = config.normalise_config({"samples": 1000, "epochs": 3, "batch": 8, "warmup": 5, "window": "rest"})
    cell = settings.resolve_cell("mobilenetv2", "train", "nsys", given)
    assert (cell["window"], cell["steps"]) == (370, 375)


def test_too_few_samples_say_how_many_are_needed() -> None:
    given = config.normalise_config({"samples": 16, "batch": 8, "window": 1})
    with pytest.raises(ConfigError, match="make 2 steps, warm-up and window need 4: set samples to 32 or more"):
        settings.resolve_cell("mobilenetv2", "train", "ncu", given)


@pytest.mark.parametrize("tool", ["ncu", "nsys", "torch", "time"])
def test_words_lead_back_to_the_cell(tool: str) -> None:
    from profzoo import run

    given = config.normalise_config({"settings": {"lstm": {"hidden": 32, "packed": True}}, "seed": 3})
    cell = settings.resolve_cell("lstm@bf16", "inference", tool, given)
    model, phase, *words = settings.setting_words(cell)
    assert run.resolve_words(model, phase, tool, words) == cell


def test_distinct_selection_keys_on_mangled_names() -> None:
    words = " ".join(ncu.selection_options(config.normalise_config({})["ncu"], "roofline"))
    assert "--filter-mode per-launch-config --launch-count 1 --kernel-name-base mangled" in words
    assert "--launch-count" not in " ".join(ncu.options(config.normalise_config({})["ncu"], "launch"))


def test_every_key_of_ncu_reaches_its_command_line() -> None:
    given = {
        "launches": 5, "replay": "application", "target_processes_filter": "regex:py", "kernel_name": "gemm",
        "devices": [0, 2], "cache_control": "none", "clock_control": "base", "sass": True, "extra": ["--verbose"],
        "sets": {"mine": {"set": "basic", "sections": ["Occupancy", "LaunchStats"], "metrics": ["a.sum"]}},
    }  # fmt: skip
    filled = config.normalise_config({"ncu": given})["ncu"]
    words = " ".join([*ncu.options(filled, "mine"), *ncu.selection_options(filled, "mine")])
    for part in ("--launch-count 5", "--target-processes-filter regex:py", "--devices 0,2",
                 "--kernel-name regex:gemm", "--cache-control none", "--clock-control base", "--import-sass yes",
                 "--set basic", "--section Occupancy --section LaunchStats", "--metrics a.sum,", "--verbose"):  # fmt: skip
        assert part in words


def test_every_key_of_nsys_reaches_its_command_line() -> None:
    given = {
        "capture": "run", "delay": 2, "duration": 5, "cuda_memory_usage": True, "gpu_metrics": True, "cuda_graph": "graph",
        "sample": "process-tree", "cpuctxsw": "process-tree", "backtrace": "fp", "pytorch": "autograd-nvtx", "extra": ["--stats=true"],
    }  # fmt: skip
    words = nsys.options(config.normalise_config({"nsys": given})["nsys"])
    for part in ("--delay=2", "--duration=5", "--cuda-memory-usage=true", "--gpu-metrics-devices=cuda-visible",
                 "--cuda-graph-trace=graph", "--sample=process-tree", "--backtrace=fp", "--pytorch=autograd-nvtx", "--stats=true"):  # fmt: skip
        assert part in words
    assert not any(word.startswith("--capture-range") for word in words)


def test_nsys_options_in_the_words_of_the_tool_that_is_there() -> None:
    old = "--gpu-metrics-device=\n--capture-range="
    assert nsys.adapt_options(["--gpu-metrics-devices=cuda-visible"], old, gpu=True) == ["--gpu-metrics-device=all"]
    with pytest.raises(ConfigError, match="offers no --pytorch"):
        nsys.adapt_options(["--pytorch=autograd-nvtx"], old, gpu=True)
    assert nsys.adapt_options([nsys.GPU_CAPTURE], old, gpu=False) == [
        "--capture-range=nvtx",
        "--nvtx-capture=profzoo_window@profzoo",
    ]


def test_report_names_of_old_tools() -> None:
    assert nsys.offered_names(["cuda_gpu_kern_sum"], "  gpukernsum[:base] -- Kernels") == ["gpukernsum"]
    assert nsys.offered_names(["cuda_gpu_kern_sum"], "  cuda_gpu_kern_sum[:base]") == ["cuda_gpu_kern_sum"]


def test_targets_that_cannot_be_are_named() -> None:
    given = config.normalise_config({})
    unknown_targets.check_targets(
        ["-n", "results/lstm/train.ncu.roofline.csv", "--report", "results/x/y.html"], "results", given
    )
    with pytest.raises(ConfigError, match="unknown phase 'trian'; did you mean 'train'"):
        unknown_targets.check_targets(["results/lstm/trian.ncu.csv"], "results", given)
