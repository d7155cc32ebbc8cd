"""The mutation tester: the mistakes that it finds, the tests that it asks, and what it says of planted mistakes."""

from pathlib import Path

import pytest

from tests import slow
from tests.mutation import run, sites

ROOT = Path(__file__).resolve().parents[2]
MODULE = '''"""A module."""
import math

LIMIT = 0.5


def share(part: float, whole: float) -> float:
    """A docstring with 3 numbers."""
    if whole == 0:
        raise ValueError(f"{part + 1} of nothing")
    return min(part / whole, 1.0)


def reach(part: float) -> bool:
    count = 0
    while count < 3:
        count += 1
    return share(part, 4.0) > LIMIT
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "profzoo").mkdir()
    (tmp_path / "profzoo/__init__.py").write_text("")
    path = tmp_path / "profzoo/share_of.py"
    path.write_text(MODULE)
    return path


def test_every_place_where_a_number_is_derived_and_no_other(module: Path) -> None:
    found = sites.find(module, "profzoo/share_of.py")
    for mistake in found:
        planted = mistake.plant(MODULE.encode())
        assert len(planted) - len(MODULE) == len(mistake.after) - len(mistake.before) and planted != MODULE.encode()
        assert mistake.line == MODULE[: mistake.start].count("\n") + 1
    assert [(it.function, it.before, it.after) for it in found] == [
        ("(module)", "0.5", "0.75"),
        ("share", 'if whole == 0:\n        raise ValueError(f"{part + 1} of nothing")', "pass"),
        ("share", "whole == 0", "(whole != 0)"),
        ("share", "0", "1"),
        ("share", "min(part / whole, 1.0)", "max(part / whole, 1.0)"),
        ("share", "part / whole", "(part * whole)"),
        ("share", "1.0", "1.5"),
        ("reach", "0", "1"),
        ("reach", "count < 3", "(count <= 3)"),
        ("reach", "3", "4"),
        ("reach", "1", "2"),
        ("reach", "share(part, 4.0) > LIMIT", "(share(part, 4.0) >= LIMIT)"),
        ("reach", "4.0", "6.0"),
    ]


@pytest.mark.parametrize(
    "path", slow.first(["statistics/process_repeats.py", "what_if/changes.py", "tools/ncu/estimates.py"])
)
def test_real_modules_still_parse_with_each_mistake(path: str) -> None:
    found = sites.find(ROOT / "profzoo" / path, path)
    assert len(found) > 30
    source = (ROOT / "profzoo" / path).read_bytes()
    for mistake in found[::5]:
        compile(mistake.plant(source), path, "exec")


def test_every_package_derives_numbers_or_says_what_it_does_instead() -> None:
    inside = (ROOT / "profzoo").iterdir()
    there = {path.name for path in inside if path.suffix == ".py" or (path / "__init__.py").exists()}
    left_out = {name for name in run.WITHOUT_NUMBERS if "/" not in name}
    assert there == {*run.PACKAGES, *left_out} and not left_out & set(run.PACKAGES)
    # Each module that is left out of a package is there.
    assert all((ROOT / "profzoo" / name).exists() for name in run.WITHOUT_NUMBERS) and all(run.WITHOUT_NUMBERS.values())
    paths = {mistake.path for mistake in run.all_mistakes(["figures"])}
    assert "profzoo/figures/waterfall.py" in paths
    assert "profzoo/figures/palette.py" not in paths


def test_no_mistake_is_planted_where_it_would_reach_the_machine() -> None:
    places = {(mistake.path, mistake.function) for mistake in run.all_mistakes(["machine"])}
    assert not places & run.UNSAFE and ("profzoo/machine/scratch_folder.py", "sweep_abandoned") in places
    # Each is still there, by that name.
    for path, function in run.UNSAFE:
        assert f"def {function}(" in Path(path).read_text()
