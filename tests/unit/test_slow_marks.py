"""slow: which cases it marks, that no file of unit tests has none left, and that `make test` says what it leaves out."""

import ast
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

from tests import conftest

TESTS = Path(__file__).parents[1]
LATER = ("slow", "faults", "gpu")


def always(path: Path) -> list[str]:
    """Names of the tests of a file that run each time, at least for one case."""
    text = path.read_text()
    # One without any decorator, in a file that marks nothing as a whole, needs no closer look.
    if "pytestmark" not in text and (plain := re.findall(r"^\n\ndef (test_\w+)", text, re.MULTILINE)):
        return plain
    tree = ast.parse(text)
    whole = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    if any(text.startswith("pytestmark = ") and has_mark(text) for text in whole):
        return []
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [test.name for test in tests if not any(has_mark(ast.unparse(one)) for one in test.decorator_list)]


def has_mark(text: str) -> bool:
    """Whether a decorator or an assignment of pytestmark leaves tests out; cases of parametrize are not looked at."""
    return "parametrize" not in text and any(f"pytest.mark.{mark}" in text for mark in LATER)


def test_each_file_of_unit_tests_has_one_that_runs_each_time() -> None:
    paths = sorted(TESTS.glob("unit/test_*.py"))
    assert len(paths) > 100 and [path.name for path in paths if not always(path)] == []


def test_what_is_left_out_is_said() -> None:
    make = (TESTS.parent / "Makefile").read_text()
    (chosen,) = re.findall(r"^test: .*\n\tpython -m pytest .*-m '([^']+)'", make, re.MULTILINE)
    assert "make test-all" in (conftest.pytest_report_header(SimpleNamespace(getoption=lambda _: chosen)) or "")
    # Whoever runs one file without make runs all of it.
    options = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "slow" not in options["addopts"]
    assert conftest.pytest_report_header(SimpleNamespace(getoption=lambda _: "not faults")) is None
