"""document_zoo: counted parameters, published ones where they differ, and models that declare next to nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo.cell import registry
from profzoo.document import zoo as document_zoo

BARE = """
from torch import nn

WORKLOADS = {"trimmed": {"inference": {"batch": 2}}}


def build(shape):
    return nn.Linear(3, 4)


def sample(shape, generator): ...
"""


def row(page: str, name: str) -> list[str]:
    return next(line for line in page.splitlines() if line.startswith(f"| `{name}` |")).split(" | ")


def test_counts_are_those_of_the_networks() -> None:
    zoo = registry.shipped_models()
    chosen = {name: zoo[name] for name in ("srcnn", "lstm")}
    page = document_zoo.write_zoo_page(
        chosen, {name: document_zoo.count_parameters(model) for name, model in chosen.items()}
    )
    assert row(page, "srcnn")[1] == "57,281" and "| `srcnn` | 57,184 | the paper leaves 97 biases out |" in page
    assert row(page, "lstm")[1] == "93,826" and "| `lstm` | 93,826 | " not in page.partition("published")[2]


def test_the_page_in_the_checkout_is_current_but_for_its_counts() -> None:
    page = (registry.ZOO.parent / "docs" / "reference" / "zoo.md").read_text()
    counts = {name: int(row(page, name)[1].replace(",", "")) for name in registry.shipped_models()}
    assert page == document_zoo.write_zoo_page(registry.shipped_models(), counts)


@pytest.mark.slow
def test_the_page_in_the_checkout_is_current() -> None:
    counts = {name: document_zoo.count_parameters(model) for name, model in registry.shipped_models().items()}
    assert (registry.ZOO.parent / "docs" / "reference" / "zoo.md").read_text() == document_zoo.write_zoo_page(
        registry.shipped_models(), counts
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "lstm.py").write_text((registry.ZOO / "lstm.py").read_text())
    (tmp_path / "unheard_of.py").write_text(BARE)
    (tmp_path / "broken.py").write_text("def (")
    monkeypatch.setattr(registry, "ZOO", tmp_path)
    registry.forget_models()
    yield tmp_path
    registry.forget_models()


def test_models_that_declare_little_have_a_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document_zoo.main(folder / "zoo.md")
    page = (folder / "zoo.md").read_text()
    # A module of that name is not there to be built.
    assert row(page, "unheard_of") == ["| `unheard_of`", "–", "2", "–", "– |"]
    assert row(page, "lstm")[1] == "93,826" and "broken" not in page
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "left out" in said[0] and "broken.py" in said[0]
    assert said[1].startswith("profzoo: warning: unheard_of cannot be built: ModuleNotFoundError: ")


def test_a_model_without_published_parameters_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare_model.py").write_text(BARE)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = registry.find_model("mine", "bare_model")
    page = document_zoo.write_zoo_page({"mine": model}, {"mine": document_zoo.count_parameters(model)})
    assert row(page, "mine")[1] == "16" and "published" not in page
