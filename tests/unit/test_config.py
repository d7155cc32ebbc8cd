"""config: mistakes beyond those of test_settings.py, groups, variants, models of one's own, targets."""

from pathlib import Path

import pytest

from profzoo.cell import registry, settings
from profzoo.config import configuration
from profzoo.errors import ConfigError


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    (tmp_path / "own_unet.py").write_text((registry.ZOO / "unet.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    return {"settings": {"mine": {"module": "own_unet", "size": "32"}}}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"phases": ["train", "train"]}, "phases = ['train', 'train'] names something twice"),
        ({"tool": "nsy"}, "tool.0 = 'nsy': did you mean 'nsys'?"),
        ({"models": []}, "models is empty: name at least 1"),
        ({"precision": "double"}, "precision = 'double': valid are: bf16, fp16, fp32, fp8, int8, tf32"),
        ({"window": "most"}, "window = 'most': "),
        ({"compile": "reduce_overhead"}, "compile = 'reduce_overhead': did you mean 'reduce-overhead'?"),
        ({"settings": {"lstm": {"precision": "fp31"}}}, "settings.lstm.precision = 'fp31': did you mean"),
        ({"settings": {"lstm": {"hidden": "x"}}}, "settings.lstm.hidden = 'x' is a string, not integer"),
        ({"models": ["models/mine.py"]}, "models.0 = 'models/mine.py': name it without folder and .py: mine"),
        ({"ncu": {"sets": {"mine": {"metric": ["a"]}}}}, "unknown key 'ncu.sets.mine.metric' (value ['a']): did you"),
        ({"nsys": {"duration": 0, "capture": "run"}}, "nsys.duration = 0 is too small: more than 0"),
        ({"variants": {"x": {"sise": 64}}}, "unknown key 'variants.x.sise' (value 64): did you mean 'size'?"),
        ({"settings": {"mine": {"module": ".x"}}}, "settings.mine.module = '.x'"),
        ({"settings": {"mine": {"module": 3}}}, "settings.mine.module = 3"),
        (
            {"generated": 32},
            "unknown key 'generated' (value 32): write a parameter of a model's shape as settings='{MODEL: "
            "{generated: 32}}'; valid are: accumulate, ",
        ),
        ({"models": {"a": {"comand": "x"}}}, "unknown key 'settings.a.comand' (value 'x'): did you mean 'command'?"),
        ({"models": {"a": {"batch": 3}}}, "unknown model 'a': "),
        (
            {"models": {"a": {"command": "python no.py"}}},
            "models = 'a': settings.a.command names 'no.py', and there is",
        ),
        (
            {"run": "../x"},
            "run = '../x', which is not a name: letters, digits, `_` and `-`, at most 64, the first a letter",
        ),
        ({"chip": "G"}, "chip = 'G', which is not a name: small letters and digits, at most 32, such as `gh100`"),
        ({"serve": {"perfetto": "x"}}, "serve.perfetto = 'x': write an address that begins with `http://` or"),
        ({"ncu": {"error": "2"}}, "ncu.error = '2': write a percentage, such as 2%"),
    ],
)
def test_a_mistake_is_one_line(given: dict, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        checked = configuration.normalise_config(given)
        for model in configuration.select_models(checked):
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
    once = configuration.normalise_config(given)
    assert configuration.normalise_config(once) == once and str(given) == before


@pytest.mark.parametrize(
    ("models", "chosen"),
    [
        ("all", sorted(registry.shipped_models())),
        ("recurrent,lstm", ["gnmt", "lstm", "mamba2", "pixelrnn", "qwen3next"]),
        (["unet", "segmentation"], ["unet", "deeplab", "icnet", "pspnet"]),
        ("super-resolution@bf16,srgan", ["srcnn@bf16", "srgan@bf16", "srgan"]),
        ({"unet": {"batch": 1}}, ["unet"]),
    ],
)
def test_select(models: object, chosen: list[str]) -> None:
    assert configuration.select_models(configuration.normalise_config({"models": models})) == chosen


def test_results_of_a_name_that_is_not_defined_here_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/hf2").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"no model or group of that name; .*; results/hf2 holds its results: name t"):
        configuration.select_models(configuration.normalise_config({"models": "hf2"}))
    with pytest.raises(ConfigError, match=r"^(?!.*holds its results)"):
        configuration.select_models(configuration.normalise_config({"models": "hf3"}))


def test_own_module(own: dict) -> None:
    checked = configuration.normalise_config({**own, "models": "mine,segmentation"})
    assert configuration.select_models(checked) == ["mine", "deeplab", "icnet", "pspnet", "unet"]
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
    assert configuration.check_targets([target], "results", configuration.normalise_config({})) is None
