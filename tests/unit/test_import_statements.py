"""What modules import is parsed once, and kept by content."""

import json
from pathlib import Path

import pytest

from profzoo import import_statements as statements
from profzoo.errors import UnusableError

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
        from profzoo import schema
"""
READ = statements.Statements(
    (
        (0, "os", ()),
        (0, "profzoo.errors", ()),
        (1, "", ("beside",)),
        (2, "tools", ("ncu",)),
        (0, "torch", ()),
        (0, "profzoo", ("schema",)),
    ),
    ("*.yaml",),
    ("figures/*.py",),
)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_known", {})
    monkeypatch.setattr(statements, "_loaded", {})


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def kept(module: Path, tmp_path: Path) -> Path:
    """What a process keeps that has read the module."""
    statements.read_statements(module, "module")
    statements.save_statements(kept := tmp_path / "folder" / "imports.json")
    return kept


def anew(monkeypatch: pytest.MonkeyPatch, kept: Path, parses: bool) -> None:
    """Load in a new process; parses: whether it still may parse."""
    nothing = {"_known": {}, "_loaded": {}}
    for name, value in nothing.items():
        monkeypatch.setattr(statements, name, value)
    if not parses:
        monkeypatch.setattr(statements, "_parse", None)
    statements.load_statements(kept)


def test_statements_that_run_are_read(module: Path) -> None:
    assert statements.read_statements(module, "module") == READ


def test_what_was_kept_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path) -> None:
    anew(monkeypatch, kept, parses=False)
    assert statements.read_statements(module, "module") == READ
    # Wherever it lies.
    elsewhere = module.rename(module.with_name("moved.py"))
    assert statements.read_statements(elsewhere, "moved") == READ


def test_a_changed_file_is_parsed(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path) -> None:
    anew(monkeypatch, kept, parses=True)
    module.write_text("import json\n")
    assert statements.read_statements(module, "module").imports == ((0, "json", ()),)


@pytest.mark.parametrize("damage", ["other", "torn", "empty", "bytes", "gone"])
def test_what_was_kept_and_is_damaged_is_parsed(
    monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path, damage: str
) -> None:
    text = kept.read_text()
    damaged = {"other": text.replace("errors", "terrors"), "torn": text[:-9], "empty": ""}
    if damage == "gone":
        kept.unlink()
    elif damage == "bytes":
        kept.write_bytes(b"\xff\xfe\n\x00")
    else:
        kept.write_text(damaged[damage])
    anew(monkeypatch, kept, parses=True)
    assert statements.read_statements(module, "module") == READ


def test_another_version_of_python_parses_for_itself(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path) -> None:
    monkeypatch.setattr(statements.platform, "python_version", lambda: "3.99.0")
    anew(monkeypatch, kept, parses=True)
    assert not statements._loaded


def test_what_others_kept_stays_until_it_is_much(
    monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path, tmp_path: Path
) -> None:
    def modules() -> int:
        return len(json.loads(kept.read_text().partition("\n")[2]))

    other = tmp_path / "other.py"
    for text, most, left in (("import a\n", 2000, 2), ("import b\n", 1, 1)):
        other.write_text(text)
        anew(monkeypatch, kept, parses=True)
        monkeypatch.setattr(statements, "MOST", most)
        statements.read_statements(other, "other")
        statements.save_statements(kept)
        assert modules() == left


def test_nothing_new_is_not_written(monkeypatch: pytest.MonkeyPatch, module: Path, kept: Path) -> None:
    anew(monkeypatch, kept, parses=False)
    statements.read_statements(module, "module")
    kept.unlink()
    statements.save_statements(kept)
    assert not kept.exists()


def test_a_folder_that_cannot_be_written_keeps_nothing(module: Path, tmp_path: Path) -> None:
    statements.read_statements(module, "module")
    (tmp_path / "file").write_text("")
    statements.save_statements(tmp_path / "file" / "imports.json")


def test_files_that_are_no_patterns_are_named(module: Path) -> None:
    module.write_text("FILES = 3\n")
    with pytest.raises(UnusableError, match="FILES = 3 of module 'module' holds no patterns"):
        statements.read_statements(module, "module")
