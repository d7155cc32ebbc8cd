"""What modules import: read once and kept by content, and, of scripts, what Python really imports for them."""

import json
import re
from pathlib import Path

import pytest

from profzoo import figures
from profzoo.errors import UnusableError
from profzoo.records import import_graph
from tests.loaded_files import loaded

SOURCE = """\
import os, profzoo.errors
from . import beside
from ..tools import ncu as counters
FILES = ("*.yaml",)
EXTENDED = ["figures/*.py"]
if TYPE_CHECKING:
    import pandas
def later():
    try:
        import torch
    except ImportError:
        from profzoo.cell import schema
"""


READ = import_graph.Statements(
    (
        (0, "os", ()),
        (0, "profzoo.errors", ()),
        (1, "", ("beside",)),
        (2, "tools", ("ncu",)),
        (0, "torch", ()),
        (0, "profzoo.cell", ("schema",)),
    ),
    ("*.yaml",),
    ("figures/*.py",),
)


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_graph, "_known", {})
    monkeypatch.setattr(import_graph, "_loaded", {})


@pytest.fixture
def module(tmp_path: Path, nothing_known: None) -> Path:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def kept(module: Path, tmp_path: Path) -> Path:
    """What a process keeps that has read the module."""
    import_graph.read_statements(module, "module")
    import_graph.save_statements(kept := tmp_path / "folder" / "imports.json")
    return kept


def anew(monkeypatch: pytest.MonkeyPatch, kept: Path, parses: bool) -> None:
    """Load in a new process; parses: whether it still may parse."""
    nothing = {"_known": {}, "_loaded": {}}
    for name, value in nothing.items():
        monkeypatch.setattr(import_graph, name, value)
    if not parses:
        monkeypatch.setattr(import_graph, "_parse", None)
    import_graph.load_statements(kept)


def test_statements_that_run_are_read(module: Path) -> None:
    assert import_graph.read_statements(module, "module") == READ


def test_what_was_kept_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path) -> None:
    anew(monkeypatch, kept, parses=False)
    assert import_graph.read_statements(module, "module") == READ
    # Wherever it lies.
    elsewhere = module.rename(module.with_name("moved.py"))
    assert import_graph.read_statements(elsewhere, "moved") == READ


def test_a_changed_file_is_parsed(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path) -> None:
    anew(monkeypatch, kept, parses=True)
    module.write_text("import json\n")
    assert import_graph.read_statements(module, "module").imports == ((0, "json", ()),)


@pytest.mark.parametrize("damage", ["other", "torn", "empty", "bytes", "gone"])
def test_what_is_damaged_is_parsed(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path, damage: str) -> None:
    text = kept.read_text()
    damaged = {"other": text.replace("errors", "terrors"), "torn": text[:-9], "empty": ""}
    if damage == "gone":
        kept.unlink()
    elif damage == "bytes":
        kept.write_bytes(b"\xff\xfe\n\x00")
    else:
        kept.write_text(damaged[damage])
    anew(monkeypatch, kept, parses=True)
    assert import_graph.read_statements(module, "module") == READ


def test_another_version_of_python_parses_for_itself(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path) -> None:
    monkeypatch.setattr(import_graph.platform, "python_version", lambda: "3.99.0")
    anew(monkeypatch, kept, parses=True)
    assert not import_graph._loaded


def test_others_stay_until_too_many(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path, tmp_path: Path) -> None:
    def modules() -> int:
        return len(json.loads(kept.read_text().partition("\n")[2]))

    other = tmp_path / "other.py"
    for text, most, left in (("import a\n", 2000, 2), ("import b\n", 1, 1)):
        other.write_text(text)
        anew(monkeypatch, kept, parses=True)
        monkeypatch.setattr(import_graph, "MOST", most)
        import_graph.read_statements(other, "other")
        import_graph.save_statements(kept)
        assert modules() == left


def test_nothing_new_is_not_written(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path) -> None:
    anew(monkeypatch, kept, parses=False)
    import_graph.read_statements(module, "module")
    kept.unlink()
    import_graph.save_statements(kept)
    assert not kept.exists()


def test_a_folder_that_cannot_be_written_keeps_nothing(module: Path, tmp_path: Path) -> None:
    import_graph.read_statements(module, "module")
    (tmp_path / "file").write_text("")
    import_graph.save_statements(tmp_path / "file" / "imports.json")


def test_files_that_are_no_patterns_are_named(module: Path) -> None:
    module.write_text("FILES = 3\n")
    with pytest.raises(UnusableError, match="FILES = 3 of module 'module' holds no patterns"):
        import_graph.read_statements(module, "module")


SCRIPTS = sorted((import_graph.PROJECT / "workflow" / "scripts").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_made_of_what_python_imports_for_it(path: Path) -> None:
    made_of = {
        file for file in import_graph.files_of(str(path.relative_to(import_graph.PROJECT))) if file.suffix == ".py"
    }
    # What its modules import by name, once they run.
    named = {file for module in made_of for file in import_graph.declared_files(module) if file.suffix == ".py"}
    assert loaded(path, sorted(named)) == made_of - {path}


def test_a_module_is_made_of_the_files_that_it_names() -> None:
    assert import_graph.PROJECT / "profzoo/verdicts/rules/rules.yaml" in import_graph.files_of(
        "workflow/scripts/tabulate_verdicts.py"
    )
    report = import_graph.PROJECT / "profzoo/report"
    assert report / "page.html.j2" in import_graph.declared_files(report / "page.py")


def test_every_figure_is_a_module_that_draws() -> None:
    assert all("def draw(" in figure.path.read_text() for figure in figures.all_figures().values())


def test_every_rule_with_a_script_names_what_it_is_made_of() -> None:
    written = "".join(path.read_text() for path in (import_graph.PROJECT / "workflow" / "rules").glob("*.smk"))
    rules = re.split(r"\n *(?:rule|checkpoint) ", written)
    scripted = set()
    for rule in rules[1:]:
        if script := rule.partition('"../scripts/')[2].partition('"')[0]:
            scripted.add(script)
            assert f'code("workflow/scripts/{script}"' in rule, rule.partition(":")[0]
    assert scripted == {path.name for path in SCRIPTS}


def test_who_goes_through_all_tools_names_their_modules() -> None:
    part = {"activities": "activity", "compared": "activity", "failures": "failures", "doctors": "doctor"}
    lacking, found = {}, set()
    for path in sorted((import_graph.PROJECT / "profzoo").rglob("*.py")):
        calls = re.findall(r"\b(?:tools|registry)\.(\w+)\(\)", path.read_text())
        asked = {part[name] for name in calls if name in part} if path.parent.name != "tools" else set()
        found |= asked
        if asked and (lacks := asked - {file.stem for file in import_graph.declared_files(path)}):
            lacking[path] = lacks
    assert found == set(part.values()) and not lacking, f"FILES lacks {lacking}"
