"""FILES of a model: what its build reads is part of its jobs, a missing one is named; names of the zoo are taken."""

import os
from pathlib import Path
from typing import Any

import pytest

from profzoo.cell import data_files, registry, settings
from profzoo.config import configuration
from profzoo.errors import ConfigError, UnusableError

MODEL = """
{files}
WORKLOADS = {{"trimmed": {{"train": {{"batch": 4}}}}}}


def build(shape): ...
def sample(shape, generator): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "weights.pt").write_text("one")
    return tmp_path


def declared(folder: Path, name: str, files: str) -> registry.Model:
    (folder / f"{name}.py").write_text(MODEL.format(files=files))
    return registry.find_model("mine", name)


def summary(name: str) -> dict[str, Any]:
    checked = configuration.normalise_config({"settings": {"mine": {"module": name}}})
    return data_files.summarise_model_files(settings.resolve_cell("mine", "train", "time", checked))


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ('FILES = ("weights.pt",)', ["weights.pt"]),
        ('FILES = ["weights.pt", "more/*.npy"]', ["a.npy", "b.npy", "weights.pt"]),
        ('FILES: tuple[str, ...] = ("./more/a.npy",)', ["a.npy"]),
        ("", []),
    ],
)
def test_declared_files_are_inputs(folder: Path, files: str, names: list[str]) -> None:
    (folder / "more").mkdir()
    for name in ("a.npy", "b.npy", "c.txt"):
        (folder / "more" / name).write_text(name)
    model = declared(folder, f"files_{len(names)}{len(files)}", files)
    assert sorted(path.name for path in registry.declared_files(model)) == names
    assert {
        path.name for path in registry.source_files(model) if path.suffix != ".py" and folder in path.parents
    } == set(names)


def test_a_replaced_file_is_another_job_even_where_it_is_older(folder: Path) -> None:
    declared(folder, "weighted", 'FILES = ("weights.pt",)')
    before = summary("weighted")["model_files"]
    assert (before["count"], before["bytes"]) == (1, 3) and summary("weighted")["model_files"] == before
    (folder / "weights.pt").write_text("two")
    os.utime(folder / "weights.pt", ns=(0, 0))
    assert summary("weighted")["model_files"]["digest"] != before["digest"]


def test_without_files_a_job_says_nothing_of_them(folder: Path) -> None:
    declared(folder, "plain_one", "")
    assert summary("plain_one") == {}


def test_a_missing_file_is_one_line(folder: Path) -> None:
    model = declared(folder, "lacking", 'FILES = ("weights.pt", "wieghts.pt")')
    for asked in (registry.declared_files, registry.source_files):
        with pytest.raises(UnusableError) as error:
            asked(model)
        assert str(error.value) == (
            f"{folder}/lacking.py: model 'mine' names 'wieghts.pt' in FILES, and there is no such file in {folder}: put it "
            "there, or correct the name"
        )


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ("FILES = 3", "FILES = 3 is no tuple or list"),
        ("FILES = (3,)", "FILES holds 3, which is no path from the folder of the model's file"),
        ('FILES = ("/data/w.pt",)', "FILES holds '/data/w.pt', which is no path from the folder"),
        ("FILES = (PATH,)", "FILES must be a literal"),
    ],
)
def test_files_of_another_form_are_one_line(folder: Path, files: str, says: str) -> None:
    with pytest.raises(UnusableError, match=r"of_other_form\.py: ") as error:
        declared(folder, "of_other_form", files)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_name_of_the_zoo_is_refused_with_both_files(folder: Path) -> None:
    declared(folder, "mylstm", "")
    with pytest.raises(ConfigError) as error:
        registry.find_model("lstm", "mylstm")
    assert f"{folder}/mylstm.py would take the name of the zoo's {registry.ZOO}/lstm.py" in str(error.value)
    assert "\n" not in str(error.value) and "such as my_lstm" in str(error.value)
    assert registry.find_model("lstm", "models.lstm").path == registry.ZOO / "lstm.py"
