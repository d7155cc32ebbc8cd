"""Which tests call which function of the package: a pytest plugin that records it, and who is asked about a mistake.

`python -m pytest -p tests.mutation.related --calls FILE` writes FILE, a line of JSON per test: its id, its seconds and
the functions of profzoo/ that it called in its own process.
"""

import ast
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.mutation.sites import MODULE, Mistake

ROOT = Path(__file__).resolve().parents[2]


class Calls:
    """Records the functions that are called while each test runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inside = f"{ROOT / 'profzoo'}/"
        self.seen: set[Any] = set()

    def notice(self, frame: FrameType, event: str, _: object) -> None:
        """What the interpreter calls for each call of a function."""
        if event == "call":
            self.seen.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record one test, its fixtures included."""
        self.seen = set()
        began = time.monotonic()
        threading.setprofile(self.notice)
        sys.setprofile(self.notice)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            called = sorted(
                f"{code.co_filename.removeprefix(f'{ROOT}/')}:{code.co_qualname.replace('.<locals>', '')}"
                for code in self.seen
                if code.co_filename.startswith(self.inside)
            )
            line = {"test": item.nodeid, "seconds": round(time.monotonic() - began, 3), "called": called}
            with self.path.open("a") as lines:
                lines.write(json.dumps(line) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file that calls are written to."""
    parser.addoption("--calls", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Record where a file is named."""
    if config.getoption("--calls"):
        config.pluginmanager.register(Calls(config.getoption("--calls").absolute()))


@dataclass(frozen=True)
class Related:
    """What is known of the tests: how long each takes, how many functions it calls, and who calls each function."""

    seconds: Mapping[str, float]
    breadth: Mapping[str, int]
    callers: Mapping[str, set[str]]
    # By module and name of a constant, the functions that mention it.
    users: Mapping[tuple[str, str], set[str]]

    def of(self, mistake: Mistake, limit_s: float) -> list[str]:
        """Tests that may notice a mistake, the most specific first, of limit_s in all; empty where none calls it."""
        functions = self._functions(mistake) & self.callers.keys()
        # What runs as the module is imported is called by no test: those of the module are asked.
        functions = functions or {name for name in self.callers if name.startswith(f"{mistake.path}:")}
        tests: set[str] = set().union(*(self.callers[function] for function in functions))
        chosen: list[str] = []
        spent = 0.0
        for test in sorted(tests, key=lambda test: (self.breadth[test], self.seconds[test], test)):
            if chosen and spent + self.seconds[test] > limit_s:
                continue
            chosen.append(test)
            spent += self.seconds[test]
        return chosen

    def _functions(self, mistake: Mistake) -> set[str]:
        if mistake.function != MODULE:
            # What is in a class or in no function of its own runs with the functions within.
            whole = f"{mistake.path}:{mistake.function}"
            return {name for name in self.callers if name == whole or name.startswith(f"{whole}.")}
        names = _names_on(Path(mistake.path), mistake.line)
        return set().union(*(self.users.get((mistake.path, name), set()) for name in names))


def read(path: Path, there: Collection[str] | None = None) -> Related:
    """What the plugin wrote, with the users of constants in profzoo/ as it is now.

    there: tests that there are, of which alone the record is taken; None for all.
    """
    seconds, breadth, callers = {}, {}, defaultdict(set)
    for line in path.read_text().splitlines():
        test = json.loads(line)
        if there is not None and test["test"] not in there:
            continue
        seconds[test["test"]], breadth[test["test"]] = test["seconds"], len(test["called"])
        for function in test["called"]:
            callers[function].add(test["test"])
    return Related(seconds, breadth, callers, _users())


def _names_on(path: Path, line: int) -> list[str]:
    """Names that the module assigns by the statement on a line."""
    for node in ast.parse(path.read_text()).body:
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            return sorted(_assigned(node))
    return []


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    names = (inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name))
    return set(names) if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) else set()


def _users() -> dict[tuple[str, str], set[str]]:
    """By module and constant, the functions of the module and of those that import it which mention the name."""
    trees = {str(path): ast.parse(path.read_text()) for path in sorted(Path("profzoo").rglob("*.py"))}
    mentions = {path: dict(_mentions(path, tree)) for path, tree in trees.items()}
    imports = {path: _imported(tree) for path, tree in trees.items()}
    found: dict[tuple[str, str], set[str]] = {}
    for path, tree in trees.items():
        module = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        functions = {
            function: words
            for other in trees
            if other == path or module in imports[other]
            for function, words in mentions[other].items()
        }
        assigned = [(names, _words(node)) for node in tree.body if (names := _assigned(node))]
        for name in set().union(*(names for names, _ in assigned)):
            reached = _derived(name, assigned)
            found[path, name] = {function for function, words in functions.items() if words & reached}
    return found


def _words(node: ast.AST) -> set[str]:
    """Names and attributes that are mentioned in a node."""
    return {
        inner.id if isinstance(inner, ast.Name) else inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute)
    }


def _derived(name: str, assigned: list[tuple[set[str], set[str]]]) -> set[str]:
    """A constant and those of its module that are made from it; assigned: names, and what their value mentions."""
    reached = {name}
    for names, words in assigned:
        if reached & words:
            reached |= names
    return reached


def _mentions(path: str, tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    waiting: list[tuple[ast.AST, str]] = [(node, "") for node in tree.body]
    while waiting:
        node, outer = waiting.pop()
        if isinstance(node, ast.ClassDef):
            waiting += [(child, f"{outer}{node.name}.") for child in node.body]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path}:{outer}{node.name}", _words(node)


def _imported(tree: ast.Module) -> set[str]:
    """The modules that a module may import, and the names in them."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
