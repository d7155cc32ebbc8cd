"""document_zoo: counted parameters, published ones where they differ, and models that declare next to nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo.cell import registry
from profzoo.document import zoo as document_zoo
from tests import slow

PAGE = registry.ZOO.parent / "docs" / "reference" / "zoo.md"

COMPARED = "## Against AI Benchmark"


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
    counts = {name: document_zoo.count_parameters(model) for name, model in chosen.items()}
    page = document_zoo.write_zoo_page(chosen, counts, {"srcnn": document_zoo.count_reference(zoo["srcnn"])})
    assert row(page, "srcnn")[1] == "57,281" and "| `srcnn` | 57,184 | the paper leaves 97 biases out |" in page
    assert row(page, "lstm")[1] == "93,826" and "| `lstm` | 93,826 | " not in page.partition("published")[2]
    ops = f"{2 * 10 * 512**2 * (81 * 3 * 64 + 25 * 64 * 32 + 25 * 32 * 3):,}"
    assert (
        f"| `srcnn` | channels 3, bounded true | 69,251 | 69,249 | {ops} | {ops} | its last three maps share a bias |"
        in page
    )


def number(shown: str) -> int:
    return int(shown.replace(",", ""))


def test_the_page_in_the_checkout_is_current_but_for_its_counts() -> None:
    models, page = registry.shipped_models(), PAGE.read_text()
    compared = page.partition(COMPARED)[2]
    counts = {name: number(row(page, name)[1]) for name in models}
    shown = {name: row(compared, name) for name, model in models.items() if model.reference}
    counted = {name: (number(cells[2]), number(cells[4])) for name, cells in shown.items()}
    assert page == document_zoo.write_zoo_page(models, counts, counted)


@pytest.mark.parametrize("name", slow.only(sorted(registry.shipped_models()), "dped", "srcnn"))
def test_the_counts_in_the_checkout_are_current_and_those_of_the_original(name: str) -> None:
    model, page = registry.shipped_models()[name], PAGE.read_text()
    assert number(row(page, name)[1]) == document_zoo.count_parameters(model)
    if not model.reference:
        assert name == "gpt"
        return
    cells = row(page.partition(COMPARED)[2], name)
    counted = document_zoo.count_reference(model)
    assert counted == (number(cells[2]), number(cells[4]))
    originals = (model.reference["parameters"], model.reference["operations"])
    close = [abs(own / original - 1) < 0.01 for own, original in zip(counted, originals, strict=True)]
    # Experts have room for more tokens than choose them; a test of the models says how many.
    assert close == [True, "experts" not in model.groups]
    assert counted == originals or model.reference["difference"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "srcnn.py").write_text((registry.ZOO / "srcnn.py").read_text())
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
    assert row(page, "unheard_of") == ["| `unheard_of`", "–", "2", *["–"] * 3, "– |"]
    assert row(page, "srcnn")[1] == "57,281" and "broken" not in page
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "left out" in said[0] and "broken.py" in said[0]
    assert said[1].startswith("profzoo: warning: unheard_of cannot be built: ModuleNotFoundError: ")


def test_a_model_without_published_parameters_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bare_model.py").write_text(BARE)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = registry.find_model("mine", "bare_model")
    page = document_zoo.write_zoo_page({"mine": model}, {"mine": document_zoo.count_parameters(model)}, {})
    assert row(page, "mine")[1] == "16" and "published" not in page
