"""slow: which cases it marks, that no file of unit tests has none left, and that `make test` says what it leaves out."""

import ast
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import conftest, slow

TESTS = Path(__file__).parents[1]
LATER = ("slow", "faults", "gpu")


def marked(cases: list[object]) -> list[bool]:
    return [isinstance(case, slow.PARAMETERS) and any(mark.name == "slow" for mark in case.marks) for case in cases]


def test_all_but_the_first_are_marked() -> None:
    assert marked(slow.first(range(4), 2)) == [False, False, True, True]
    # A case of several parameters stays one case, and one that has marks keeps them.
    assert slow.first([("a", 1), ("b", 2)])[1].values == ("b", 2)
    faults = pytest.param("c", marks=pytest.mark.faults, id="third")
    last = slow.first(["a", faults])[1]
    assert [mark.name for mark in last.marks] == ["faults", "slow"] and last.id == "third"


def test_all_but_the_named_are_marked() -> None:
    assert marked(slow.only(["a", "b", "c"], "b")) == [True, False, True]
    with pytest.raises(AssertionError):
        slow.only(["a", "b"], "z")


def always(path: Path) -> list[str]:
    """Names of the tests of a file that run each time, at least for one case."""
    tree = ast.parse(path.read_text())
    whole = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    if any(text.startswith("pytestmark = ") and has_mark(text) for text in whole):
        return []
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [test.name for test in tests if not any(has_mark(ast.unparse(one)) for one in test.decorator_list)]


def has_mark(text: str) -> bool:
    """Whether a decorator or an assignment of pytestmark leaves tests out; cases of parametrize are not looked at."""
    return "parametrize" not in text and any(f"pytest.mark.{mark}" in text for mark in LATER)


@pytest.mark.parametrize("path", sorted(TESTS.glob("unit/test_*.py")), ids=lambda path: path.stem)
def test_each_file_of_unit_tests_has_one_that_runs_each_time(path: Path) -> None:
    assert always(path)


def test_what_is_left_out_is_said() -> None:
    make = (TESTS.parent / "Makefile").read_text()
    (chosen,) = re.findall(r"^test: .*\n\tpython -m pytest .*-m '([^']+)'", make, re.MULTILINE)
    assert "make test-all" in (conftest.pytest_report_header(SimpleNamespace(getoption=lambda _: chosen)) or "")
    # Whoever runs one file without make runs all of it.
    options = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "slow" not in options["addopts"]
    assert conftest.pytest_report_header(SimpleNamespace(getoption=lambda _: "not faults")) is None
