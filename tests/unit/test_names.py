"""Names and sizes: each is held against the schema wherever it enters, and what does not fit is one early line."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.cli import parse_config

from profzoo import run, tools
from profzoo.cell import registry, schema, settings
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.machine import job_limits

MODEL = (
    'WORKLOADS = {"trimmed": {"inference": {"batch": 2}}}\n\ndef build(shape): ...\ndef sample(shape, generator): ...\n'
)
NO_NAMES = ["-rf", "x/../../escape", ".", "", "a b", "é", "x" * 300, "007", "1e5", "a\n", "a.b", "a'b", "$(x)"]
WORDS = ["null", "True", "no", "NaN", "none"]
# As a file of YAML gives them where they are not quoted.
UNQUOTED: list[object] = [7, 1e5, None, True, 1.5]
FOLDERS = ["tables", "figures", "logs", "peaks", "benchmarks", "all"]


def refused(given: Mapping[Any, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        checked = configuration.normalise_config(given)
        configuration.select_cells(checked)
    line = str(error.value)
    assert "\n" not in line and len(line) < 500
    return line


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "named_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "named_model"


@pytest.mark.parametrize("name", [*NO_NAMES, *WORDS, *UNQUOTED])
def test_what_is_no_name_is_refused_wherever_one_enters(own: str, name: Any) -> None:
    places: dict[str, Any] = {
        "gpu": {"gpu": name},
        "variants": {"variants": {name: {"batch": 2}}},
        "ncu.sets": {"ncu": {"sets": {name: {"set": "full"}}}},
        "ncu.set": {"ncu": {"set": name}},
        "settings": {"settings": {name: {"module": own}}},
        "models": {"models": [name]},
    }
    for place, given in places.items():
        line = refused(given)
        assert line.startswith(place) and "which is not a name: " in line
    if isinstance(name, str):
        with pytest.raises(ConfigError) as error:
            run.resolve_words(name, "inference", "time", [f"module={own}"])
        assert "\n" not in str(error.value)


def test_no_model_is_named_like_a_folder_of_the_workflow(own: str) -> None:
    assert set(FOLDERS) == configuration.SHARED | {"all"}
    for name in FOLDERS:
        assert refused({"settings": {name: {"module": own}}}).startswith(
            f"settings holds '{name}', which is not a name: "
        )
        with pytest.raises(ConfigError, match="which is not a name"):
            registry.find_model(name, own)
    for name in ("Tables", "LOGS", "All", "Peaks", "fIgures", "tables"):
        assert "which is not a name" in refused({"settings": {name: {"module": own}}})
        assert schema.is_name(name) and not schema.is_name(name, "model")


@pytest.mark.parametrize("name", ["h200", "RTX-4090", "_x", "a" * 64, "bf16", "Nano"])
def test_names(own: str, name: str) -> None:
    given = {
        "gpu": name, "variants": {name: {"batch": 2}}, "ncu": {"sets": {name: {"set": "full"}}, "set": name},
        "settings": {name: {"module": own}}, "models": [f"{name}@{name}"], "phases": ["inference"],
    }  # fmt: skip
    assert configuration.select_cells(configuration.normalise_config(given)) == [(f"{name}@{name}", "inference")]
    assert re.fullmatch(schema.PATTERN, name)


def test_what_is_shipped_bears_names() -> None:
    for name in [*registry.shipped_models(), *schema.load_schema()["properties"]["variants"]["default"]]:
        assert schema.is_name(name, "model") and re.fullmatch(schema.PATTERN, name)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("results/../escape/train.csv", "unknown model '..'"),
        ("results/x/../../escape/train.csv", "unknown model 'x'"),
        ("results/007/train.time.csv", "unknown model '007'"),
        ("results/lstm/train@compile.time.csv", "a variant follows the model: results/lstm@compile/train.time.csv"),
        ("results/peaks/-rf.csv", "'-rf' is not a valid name of a GPU"),
        ("./results/peaks/é.csv.json", "'é' is not a valid name of a GPU"),
        ("results/lstm/train.ncu.a.b.csv", "no tool, section set or file 'a'"),
    ],
)
def test_targets_by_path(target: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        configuration.check_targets([target], "results", configuration.normalise_config({}))
    assert str(error.value).startswith(f"target '{target}': {words}") and "\n" not in str(error.value)


def integers(part: Any, where: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The parts of a schema that take numbers, by their place."""
    if isinstance(part, Mapping):
        kinds = part.get("type", [])
        if {"integer", "number"} & {kinds, *kinds} if isinstance(kinds, str) else {"integer", "number"} & set(kinds):
            yield where, part
        for key, value in part.items():
            yield from integers(value, f"{where}.{key}")


def test_every_number_has_bounds() -> None:
    for where, part in integers(schema.load_schema()):
        if "exclusiveMinimum" not in part or "string" not in part["type"]:
            assert part["maximum"] > (part["minimum"] if "minimum" in part else part["exclusiveMinimum"]), where
            continue
        *_, section, _, key = where.split(".")
        said = {10**8: "at most 2592000 s (30 days)", "1.2.3s": f"{section}.{key} = '1.2.3s' is not a time"}
        for given, line in said.items():
            with pytest.raises(ConfigError, match=re.escape(line)):
                job_limits.export_limits(configuration.normalise_config({section: {key: given}}), tools.names())


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"batch": 10**20}, "batch = 100000000000000000000 is too large: at most 1000000"),
        ({"batch": f"0x{'f' * 9999}"}, "the configuration holds a number of too many digits: Exceeds the limit ("),
        ({"gpus": 100000}, "gpus = 100000 is too large: at most 64"),
        ({"settings": {"lstm": {"hidden": 10**9}}}, "settings.lstm.hidden = 1000000000 is too large: at most 10000000"),
        ({"batch": 1.0}, "batch = 1.0 is a number, not integer or string or null"),
        ({"nsys": {"delay": float("nan")}}, "nsys.delay = nan is not finite, not number or null"),
        ({"batch": "x" * 1000}, f"batch = '{'x' * 59}...{'x' * 29}': valid are: auto or a whole number"),
    ],
)
def test_sizes_have_bounds(given: dict[str, Any], line: str) -> None:
    assert refused(given).startswith(line)


def test_steps_times_batch_have_a_bound() -> None:
    checked = configuration.normalise_config({"batch": 10**6, "window": 10**6})
    with pytest.raises(ConfigError, match="take 1000003000000 samples, of at most 100000000: lower batch, warmup or"):
        settings.resolve_cell("lstm", "train", "time", checked)


@pytest.mark.parametrize(
    ("told", "value"),
    [
        ("false", False), ("3", 3), ("2.5", 2.5), ("null", None), ("text", "text"), ("'2012'", "2012"),
        ("[1, false]", [1, False]), ("{a: {b: no}}", {"a": {"b": False}}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["data", "settings", "variants"])
def test_the_command_line_has_the_types_of_a_file(place: str, told: str, value: object) -> None:
    data = f"{{source: dataset, name: FakeData, arguments: {{train: {told}}}}}"
    word = {"data": f"data={data}", "settings": f"settings={{unet: {{data: {data}}}}}",
            "variants": f"variants={{x: {{data: {data}}}}}"}[place]  # fmt: skip
    asked = parse_config([word.replace("'2012'", "\"'2012'\"")])
    of_file = yaml.safe_load(word.replace("=", ": ", 1))
    assert configuration.normalise_config(of_file)[place] == configuration.normalise_config(asked, asked)[place]
    checked = configuration.normalise_config(asked, asked)
    cell = settings.resolve_cell("unet@x" if place == "variants" else "unet", "train", "time", checked)
    assert cell["data"]["arguments"]["train"] == value
    assert type(cell["data"]["arguments"]["train"]) is type(value)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of models, of which each test puts others into it."""
    (tmp_path / "good.py").write_text(MODEL)
    monkeypatch.setattr(registry, "ZOO", tmp_path)
    registry.forget_models()
    yield tmp_path
    registry.forget_models()


def litter(folder: Path) -> set[str]:
    """What may lie beside a good model; the names under which it is said to be of no use."""
    (folder / ".#good.py").symlink_to("someone@host.4711")
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "device.py").symlink_to("/dev/zero")
    (folder / "circle.py").symlink_to("circle.py")
    (folder / "half.py").write_text(MODEL[:-40])
    (folder / "nul.py").write_bytes(b"\0" * 100)
    (folder / "deep.py").write_text(f"SHAPE = {'[' * 150}{']' * 150}\n{MODEL}")
    (folder / "tables.py").write_text(MODEL)
    (folder / "007.py").write_text(MODEL)
    (folder / "é.py").write_text(MODEL)
    (folder / "a\nb.py").write_text(MODEL)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.py")).write_text(MODEL)
    (folder / "my.helper.py").write_text("def layers(): ...\n")
    odd = ["{1: 2, 'a': 3}", "{'a b': 1}", "{'a': 1e999}", "{'a': {1}}", "{'a': 2**3}"]
    for number, shape in enumerate(odd):
        (folder / f"shape{number}.py").write_text(f"SHAPE = {shape}\n{MODEL}")
    (folder / "group.py").write_text(f"GROUPS = (1,)\n{MODEL}")
    (folder / "large.py").write_text(MODEL.replace('"batch": 2', '"batch": 10**9').replace("10**9", "1000000000"))
    names = {"folder", "pipe", "device", "circle", "half", "nul", "deep", "tables", "007", "\\xe9", "a\\nb", "\\udcff"}
    return names | {f"shape{number}" for number in range(len(odd))} | {"group", "large"}


def test_whatever_lies_beside_a_model_costs_its_own_cells_alone(folder: Path) -> None:
    names = litter(folder)
    registry.forget_models()
    assert list(registry.shipped_models()) == ["good"] and set(registry.unusable_models()) == names
    checked = configuration.normalise_config({})
    assert configuration.select_cells(checked) == [("good", "inference")]
    lines = configuration.describe_left_out(checked)
    assert len(lines) == len(names) and all(line.isprintable() and len(line) < 500 for line in lines)
    json.dumps(lines)


@pytest.mark.parametrize("text", ["def (", "FILES = 5", "FILES = ('/etc/*',)", "FILES = (1,)", "FILES = ('',)"])
def test_a_helper_costs_the_cells_of_its_importers(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    package = folder / "models"
    package.mkdir()
    monkeypatch.setattr(registry, "ZOO", package)
    monkeypatch.setitem(registry.import_graph.PACKAGES, "models", folder)
    (package / "good.py").write_text(MODEL)
    (package / "user.py").write_text(f"from models import bad_helper\n{MODEL}")
    (package / "bad_helper.py").write_text(f"{text}\n")
    registry.forget_models()
    registry._sources.cache_clear()
    checked = configuration.normalise_config({})
    assert configuration.select_cells(checked) == [("good", "inference")]
    assert any(line.startswith("models = all leaves out user: ") for line in configuration.describe_left_out(checked))
    assert "models = 'user': " in refused({"models": ["user"]})


def test_what_breaks_after_planning_leaves_the_jobs_of_others(folder: Path) -> None:
    (folder / "other.py").write_text(MODEL)
    (folder / "third.py").write_text(MODEL)
    given = {"models": ["good", "other", "third"], "phases": ["inference"], "settings": {"third": {"batch": 3}}}
    planned = configuration.select_cells(configuration.normalise_config(given))
    (folder / "other.py").write_text(MODEL[:-40])
    (folder / "third.py").unlink()
    registry.forget_models()
    for attempt in (given, given | {"models": ["other"]}):
        with pytest.raises(ConfigError):
            configuration.select_cells(configuration.normalise_config(attempt))
    again = configuration.select_cells(configuration.normalise_config(given, planned=True), planned=True)
    assert set(again) == set(planned)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"settings": {"named": {"module": "named_model"}, "Named": {"module": "named_model"}}}, "models 'named' and"),
        ({"settings": {"LSTM": {"module": "named_model"}}}, "models 'lstm' and 'LSTM' differ only in case: on a disk"),
        ({"variants": {"BF16": {"batch": 2}}}, "variants 'bf16' and 'BF16' differ only in case"),
        ({"ncu": {"sets": {"Roofline": {"set": "full"}}}}, "section sets 'roofline' and 'Roofline' differ only in case"),
    ],
)  # fmt: skip
def test_names_that_are_one_on_some_disks_are_refused(own: str, given: dict[str, Any], line: str) -> None:
    assert refused(given).startswith(line)


def test_files_of_models_that_are_one_on_some_disks_are_refused(folder: Path) -> None:
    (folder / "GOOD.py").write_text(MODEL)
    registry.forget_models()
    assert refused({}) == (
        "models 'GOOD' and 'good' differ only in case: on a disk that ignores case their results would be mixed up. "
        "Rename one of them, in models/, settings or imported"
    )
    # A job that was planned is not ended by a file that came since.
    planned = configuration.normalise_config({"models": ["good"], "phases": ["inference"]}, planned=True)
    assert configuration.select_cells(planned, planned=True) == [("good", "inference")]
