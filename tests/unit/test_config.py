"""config: mistakes beyond those of test_settings.py, groups, variants, models of one's own, targets."""

from pathlib import Path

import pytest

from profzoo.cell import registry, settings
from profzoo.config import configuration as config
from profzoo.config import unknown_targets
from profzoo.errors import ConfigError


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """A configuration with a model of the user's own."""
    (tmp_path / "own_unet.py").write_text((registry.ZOO / "unet.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    return {"settings": {"mine": {"module": "own_unet", "size": "32"}}}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"phases": "trian"}, "phases.0 = 'trian': did you mean 'train'?"),
        ({"phases": ["train", "train"]}, "phases = ['train', 'train'] names something twice"),
        ({"tool": "nsy"}, "tool.0 = 'nsy': did you mean 'nsys'?"),
        ({"models": []}, "models is empty: name at least 1"),
        ({"models": "{}"}, "models is empty"),
        ({"precision": "double"}, "precision = 'double': valid are: bf16, fp16, fp32, fp8, int8, tf32"),
        ({"workload": "big"}, "workload = 'big': valid are: reference, trimmed"),
        ({"epochs": 0}, "epochs = 0 is too small: at least 1"),
        ({"window": "most"}, "window = 'most': "),
        (
            {"compile": "maybe"},
            "compile = 'maybe': valid are: default, false, max-autotune-no-cudagraphs, reduce-overhead, true",
        ),
        ({"compile": "reduce_overhead"}, "compile = 'reduce_overhead': did you mean 'reduce-overhead'?"),
        ({"optimizer": "fuse"}, "optimizer = 'fuse': did you mean 'fused'?"),
        ({"fail_on": "slow"}, "fail_on = 'slow': did you mean 'slower'?"),
        ({"seed": -1}, "seed = -1 is too small: at least 0"),
        ({"data": {"roots": "x"}}, "unknown key 'data.roots' (value 'x'): did you mean 'root'?"),
        ({"settings": {"lstm": {"precision": "fp31"}}}, "settings.lstm.precision = 'fp31': did you mean"),
        ({"settings": {"lstm": {"hidden": "x"}}}, "settings.lstm.hidden = 'x' is a string, not integer"),
        ({"ncu": {"sets": {"a.b": {"set": "full"}}}}, "ncu.sets holds 'a.b', which is no name: letters"),
        ({"models": ["models/mine.py"]}, "models.0 = 'models/mine.py': name it without folder and .py: mine"),
        ({"ncu": {"sets": {"mine": {"metric": ["a"]}}}}, "unknown key 'ncu.sets.mine.metric' (value ['a']): did you"),
        ({"ncu": {"replay": "rang"}}, "ncu.replay = 'rang': did you mean 'range'?"),
        ({"ncu": {"devices": "x"}}, "ncu.devices.0 = 'x' is a string, not integer"),
        ({"nsys": {"duration": 0, "capture": "run"}}, "nsys.duration = 0 is too small: more than 0"),
        ({"nsys": {"traces": "cuda,nvtxx"}}, "nsys.traces.1 = 'nvtxx': did you mean 'nvtx'?"),
        ({"torch": {"repeat": 0}}, "torch.repeat = 0 is too small: at least 1"),
        ({"figures": {"top": "many"}}, "figures.top = 'many' is a string, not integer"),
        ({"settings": {"lstm": 5}}, "settings.lstm = 5 is an integer"),
        ({"models": {"lstm": "big"}}, "settings.lstm = 'big' is a string"),
        ({"variants": {"x": None}, "models": "lstm@x"}, "variants.x = None is null"),
        ({"variants": {"x": {"sise": 64}}}, "unknown key 'variants.x.sise' (value 64): did you mean 'size'?"),
        ({"settings": {"mine": {"module": ".x"}}}, "settings.mine.module = '.x'"),
        ({"settings": {"mine": {"module": 3}}}, "settings.mine.module = 3"),
    ],
)
def test_a_mistake_is_one_line(given: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        checked = config.normalise_config(given)
        for model in config.select_models(checked):
            settings.resolve_cell(model, "train", "time", checked)
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"models": {"lstm": {"batch": "3"}, "unet": None}},
        {"variants": {"big": {"batch": 64}}, "models": "lstm@big"},
        {"ncu": "{sets: {mine: {set: full}}, set: mine}", "nsys": {"reports": "gpukernsum,cuda_gpu_kern_sum"}},
    ],
)
def test_normalise_is_idempotent_and_leaves_its_input_alone(given: dict) -> None:
    before = str(given)
    once = config.normalise_config(given)
    assert config.normalise_config(once) == once and str(given) == before


@pytest.mark.parametrize(
    ("models", "chosen"),
    [
        ("all", sorted(registry.shipped_models())),
        ("recurrent,lstm", ["gnmt", "lstm", "pixelrnn"]),
        (["unet", "segmentation"], ["unet", "deeplab", "icnet", "pspnet"]),
        ("transformer@bf16,bert", ["bert@bf16", "gpt@bf16", "bert"]),
        ({"unet": {"batch": 1}}, ["unet"]),
    ],
)
def test_select(models: object, chosen: list[str]) -> None:
    assert config.select_models(config.normalise_config({"models": models})) == chosen


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("lstn", "did you mean 'lstm'"),
        ("lstm@bf61", "no variant 'bf61'; did you mean 'bf16'"),
        ("segmentaton", "'segm"),
    ],
)
def test_select_names_what_is_unknown(models: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config.select_models(config.normalise_config({"models": models}))


def test_a_mapping_of_models_goes_over_settings() -> None:
    given = {"models": {"lstm": {"batch": 3}}, "settings": {"lstm": {"batch": 4}, "unet": {"batch": 5}}}
    assert config.normalise_config(given)["settings"] == {"lstm": {"batch": 3}, "unet": {"batch": 5}}


def test_own_module(own: dict) -> None:
    checked = config.normalise_config({**own, "models": "mine,segmentation"})
    assert config.select_models(checked) == ["mine", "deeplab", "icnet", "pspnet", "unet"]
    cell = settings.resolve_cell("mine", "inference", "nsys", checked)
    assert (cell["module"], cell["shape"]["size"], cell["batch"]) == ("own_unet", 32, 2)
    assert "module=own_unet" in settings.setting_words(cell)


@pytest.mark.parametrize(
    "target",
    ["results/lstm@bf16/train.time.csv", "./results/unet/inference.nsys/cuda_gpu_sum.csv", "results/lstm/weights.pt",
     "results/tables/cells.csv", "elsewhere/nothing/trian.csv", "all", "results/unet/train.full.ncu-rep.json",
     "results/unet/train.trace.json.gz"],
)  # fmt: skip
def test_targets_that_can_be(target: str) -> None:
    assert unknown_targets.check_targets([target], "results", config.normalise_config({})) is None


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("results/lstn/train.time.csv", "unknown model 'lstn'; did you mean 'lstm'"),
        ("./results/lstm@bf61/train.csv", "unknown variant 'bf61'; did you mean 'bf16'"),
        ("results/lstm/train.ncu.rofline.csv", "no tool, section set or file 'rofline'; did you mean 'roofline'"),
        ("results/lstm/train.nsis.csv", "did you mean 'nsys'"),
    ],
)
def test_targets_that_cannot_be(target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        unknown_targets.check_targets(["-n", target], "results", config.normalise_config({}))
