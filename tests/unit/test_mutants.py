"""The mutation tester: the mistakes that it finds, the tests that it asks, and what it says of planted mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import slow
from tests.mutation import related, run, sites

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
TEST = """from profzoo.share_of import share, reach

def test_share():
    assert share(1, 4) == 0.25

def test_share_of_all():
    assert share(9, 4) == 1

def test_reach():
    assert reach(3)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "profzoo").mkdir()
    (tmp_path / "profzoo/__init__.py").write_text("")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text(TEST)
    path = tmp_path / "profzoo/share_of.py"
    path.write_text(MODULE)
    return path


def changes(path: Path) -> list[tuple[str, str, str]]:
    return [(it.function, it.before, it.after) for it in sites.find(path, "profzoo/share_of.py")]


def test_every_place_where_a_number_is_derived_and_no_other(module: Path) -> None:
    assert changes(module) == [
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


def test_a_planted_mistake_changes_its_own_place_alone(module: Path) -> None:
    source = module.read_bytes()
    for mistake in sites.find(module, "profzoo/share_of.py"):
        planted = mistake.plant(source)
        assert planted != source
        assert len(planted) - len(source) == len(mistake.after.encode()) - len(mistake.before.encode())
        assert mistake.line == source[: mistake.start].count(b"\n") + 1


@pytest.mark.parametrize(
    "path", slow.first(["tools/ncu/strata.py", "what_if/changes.py", "statistics/process_repeats.py"])
)
def test_real_modules_still_parse_with_each_mistake(path: str) -> None:
    found = sites.find(ROOT / "profzoo" / path, path)
    assert len(found) > 30
    source = (ROOT / "profzoo" / path).read_bytes()
    for mistake in found:
        compile(mistake.plant(source), path, "exec")


def outcomes(folder: Path, functions: dict[str, list[str]], limit_s: float) -> list[list[str]]:
    """What the tests of each function make of each of its mistakes, in a process of its own as it forks."""
    script = f"""
import json, sys
from pathlib import Path
from tests.mutation import run, sites
folder, functions = Path({str(folder)!r}), {functions!r}
for it in sites.find(folder / "profzoo/share_of.py", "profzoo/share_of.py"):
    if it.function in functions:
        print(json.dumps([it.before, it.after, run.ask(it, functions[it.function], folder, {limit_s})]), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_says_which_planted_mistakes_a_test_notices(module: Path) -> None:
    found = {
        (before.split("\n")[0], after): result
        for before, after, result in outcomes(module.parents[1], {"share": ["tests/test_it.py"]}, 60)
    }
    # No test divides by nothing, and none has a whole of one.
    assert found == {
        ("if whole == 0:", "pass"): run.SURVIVED,
        ("whole == 0", "(whole != 0)"): run.NOTICED,
        ("0", "1"): run.SURVIVED,
        ("min(part / whole, 1.0)", "max(part / whole, 1.0)"): run.NOTICED,
        ("part / whole", "(part * whole)"): run.NOTICED,
        ("1.0", "1.5"): run.NOTICED,
    }
    assert module.read_text() == MODULE


@pytest.mark.slow
def test_a_mistake_that_hangs_is_noticed_in_time(module: Path) -> None:
    module.write_text(MODULE.replace("count += 1", "count += 1 if LIMIT == 0.5 else 0"))
    mistakes = outcomes(module.parents[1], {"(module)": ["tests/test_it.py::test_reach"]}, 5)
    assert mistakes == [["0.5", "0.75", run.HANGS]]


@pytest.mark.slow
def test_asks_those_who_call_the_function_and_the_most_specific_first(tmp_path: Path) -> None:
    path = "profzoo/statistics/process_repeats.py"
    lines = [
        {"test": "wide", "seconds": 1.0, "called": [f"{path}:between", f"{path}:other", "profzoo/formatting.py:plain"]},
        {"test": "narrow", "seconds": 2.0, "called": [f"{path}:between"]},
        {"test": "inner", "seconds": 3.0, "called": [f"{path}:between.<listcomp>"]},
        {"test": "elsewhere", "seconds": 0.1, "called": ["profzoo/formatting.py:plain"]},
    ]
    record = tmp_path / "calls.jsonl"
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = related.read(record)
    mistake = sites.Mistake(path, 1, "between", "1", "2", 0, 1)
    assert known.of(mistake, 40) == ["narrow", "inner", "wide"]
    assert known.of(mistake, 3.5) == ["narrow", "wide"]
    # One is always asked, however long it takes.
    assert known.of(mistake, 0) == ["narrow"]
    # A test that is gone since would count as one that notices every mistake.
    assert related.read(record, {"inner", "wide", "elsewhere"}).of(mistake, 40) == ["inner", "wide"]
    # What no test calls may run as the module is imported: all who call anything in it are asked.
    assert known.of(sites.Mistake(path, 1, "unknown", "1", "2", 0, 1), 40) == ["narrow", "inner", "wide"]
    assert known.of(sites.Mistake("profzoo/statistics/steady_state.py", 1, "unknown", "1", "2", 0, 1), 40) == []


@pytest.mark.slow
def test_asks_those_who_use_a_constant_about_it(tmp_path: Path) -> None:
    path = "profzoo/tools/ncu/strata.py"
    line = 1 + (ROOT / path).read_text().splitlines().index("JITTER, JITTER_NS, STEEP = 0.005, 100.0, 2.0")
    lines = [
        {"test": "user", "seconds": 1.0, "called": [f"{path}:_unlike_work"]},
        {"test": "neighbour", "seconds": 1.0, "called": [f"{path}:_differ"]},
    ]
    record = tmp_path / "calls.jsonl"
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = related.read(record)
    assert known.of(sites.Mistake(path, line, sites.MODULE, "0.005", "0.0075", 0, 1), 40) == ["user"]


def test_shares_by_package_add_up() -> None:
    paths = ["profzoo/tools/ncu/strata.py", "profzoo/tools/ncu/strata.py", "profzoo/statistics/steady_state.py"]
    results = [run.NOTICED, run.SURVIVED, run.HANGS]
    found = [
        run.Outcome(sites.Mistake(path, 1, "f", "1", "2", 0, 1), result, 1)
        for path, result in zip(paths, results, strict=True)
    ]
    assert run.summarise(found) == [
        "statistics      1 of    1 noticed, 100%",
        "tools/ncu       1 of    2 noticed,  50%",
        "all             2 of    3 noticed,  67%",
    ]


def test_no_mistake_is_planted_where_it_would_reach_the_machine() -> None:
    places = {(mistake.path, mistake.function) for mistake in run.all_mistakes(["machine"])}
    assert not places & run.UNSAFE and ("profzoo/machine/scratch_folder.py", "sweep_abandoned") in places
    # Each is still there, by that name.
    for path, function in run.UNSAFE:
        assert f"def {function}(" in Path(path).read_text()
