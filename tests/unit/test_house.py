"""The house's own rules: how long code may be, what may import what, and that every example in it is true."""

import ast
import doctest
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profzoo import import_graph

ROOMS = ("profzoo", "models", "workflow/scripts", "profiles")
FUNCTION_LINES, MODULE_LINES = 50, 300
# What profzoo holds, from the bottom up: a part imports those of lines above its own, none of its own line or below.
LAYERS = (
    ("errors", "formatting", "range_names", "secret_detection", "statistics"),
    ("extensions", "records"),
    ("import_graph",),
    ("io",),
    ("schema_errors",),
    ("schema", "machine"),
    ("cell", "op_costs"),
    ("harness", "tools"),
    ("calibration", "experiments", "kernels", "what_if"),
    ("foreign_reports", "launches"),
    ("config", "tables"),
    ("compare", "verdicts"),
    ("trials",),
    ("zoo_tables",),
    ("data_dictionary",),
    ("figures",),
    ("report",),
    ("clean", "collect", "document", "extension_checks", "run"),
    ("redaction", "workflow"),
    ("shutdown",),
    ("doctor", "results", "serve", "share", "terminal", "verify"),
)
# What the zoo may import of profzoo, by prefixes; `python -m models.run` is the zoo's command line.
OF_MODELS = ("profzoo.harness.interface", "profzoo.harness.tasks", "profzoo.errors")
COMMAND_LINE = {"models/run.py": ("profzoo.run",)}
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# Of a file's place in the project, what it parses to, and its text: lines, and what is wrong there.
Check = Callable[[Path, ast.Module, str], Iterator[tuple[int, str]]]


def modules(root: Path) -> list[Path]:
    """The modules that rules are about."""
    return sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))


def long_functions(place: Path, tree: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield node.lineno, f"{node.name} has {lines} lines, of {FUNCTION_LINES}: split it"


def long_modules(place: Path, tree: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    lines = len(text.splitlines())
    if lines > MODULE_LINES:
        yield 1, f"the module has {lines} lines, of {MODULE_LINES}: split it"


def undescribed(place: Path, tree: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    first = tree.body[0] if tree.body else None
    said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    if not said or not (ast.get_docstring(tree, clean=False) or "").split("\n")[0].strip():
        yield 1, "the module does not say in its first line what it is for"


def nested_functions(place: Path, tree: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, Function) and any(list(returned(inner)) for inner in returned(node)):
            name = getattr(node, "name", "a lambda")
            yield node.lineno, f"{name} returns a function that returns a function: make one take both's arguments"


def returned(function: Function) -> Iterator[Function]:
    """The functions of its own that a function returns, by name, as a lambda, in a collection, or called in between."""
    if isinstance(function, ast.Lambda):
        yield from given(function.body, {})
        return
    inner = {node.name: node for node in own(function) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in own(function):
        if isinstance(node, ast.Return) and node.value:
            yield from given(node.value, inner)


def own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes in a function, but for those in functions within it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, Function):
            yield from own(node)


def given(value: ast.AST, inner: dict) -> Iterator[Function]:
    """The functions that an expression's value is or holds; inner: functions by the names that it may call them by."""
    if isinstance(value, ast.Lambda):
        yield value
    elif isinstance(value, ast.Name) and value.id in inner:
        yield inner[value.id]
    elif isinstance(value, ast.Call):
        # Arguments are not what is returned, such as the key of sorted; the function that is called may return one.
        if isinstance(value.func, ast.Name) and value.func.id in inner:
            yield from returned(inner[value.func.id])
    else:
        for part in ast.iter_child_nodes(value):
            yield from given(part, inner)


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The modules that a file imports; of `from package import name` both the package's and what may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not used here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def misplaced_imports(place: Path, tree: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    """Imports that run against the others."""
    room = next(room for room in ROOMS if place.is_relative_to(room))
    inside = place.relative_to(room)
    for line, name in imported(tree):
        package = name.partition(".")[0]
        if room == "models" and package == "profzoo":
            if not within(name, OF_MODELS + COMMAND_LINE.get(place.as_posix(), ())):
                yield line, f"a model imports {name}: of profzoo it may import {', '.join(OF_MODELS)}"
        elif room == "workflow/scripts":
            if package != "profzoo":
                yield line, f"an adapter imports {name}: it calls profzoo, and nothing else"
        elif package in ("workflow", "models") and (room, package) != ("models", "models"):
            yield line, f"{room} imports {name}: rules and models import it"
        elif room == "profzoo" and package == "profzoo" and name.count("."):
            yield from ((line, why) for why in upwards(inside.parts[0].removesuffix(".py"), name.split(".")[1]))


def upwards(importer: str, used: str) -> Iterator[str]:
    """Why one part of profzoo may not import another."""
    level = {part: index for index, layer in enumerate(LAYERS) for part in layer}
    for part in (importer, used):
        if part not in level and part != "__init__":
            yield f"profzoo.{part} has no layer: name it in LAYERS of {Path(__file__).name}"
            return
    if importer not in (used, "__init__") and level[importer] <= level[used]:
        yield f"profzoo.{importer} imports profzoo.{used}, which is not below it in LAYERS of {Path(__file__).name}"


def functions_in_rules(root: Path) -> list[str]:
    """Functions that files of rules define, each with its place; a lambda of one line is let be."""
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()} belongs into profzoo/workflow, where it is typed and tested"
        for path in sorted([*(root / "workflow").rglob("*.smk"), *root.glob("**/Snakefile")])
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.match(r"\s*(async\s+)?(def|class)\s|.*\blambda\b[^:]*:\s*$", line)
    ]


def test_rules_define_no_functions() -> None:
    assert len(list((import_graph.PROJECT / "workflow").rglob("*.smk"))) > 10
    assert functions_in_rules(import_graph.PROJECT) == []


@pytest.mark.parametrize(
    "line", ["def f():", "    def f(x):", "async def f():", "class A:", "    runtime=lambda wildcards, attempt:"]
)
def test_a_function_in_a_file_of_rules_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "workflow/rules").mkdir(parents=True)
    (tmp_path / "workflow/rules/a.smk").write_text(f"# def\nrule a:\n    input: lambda w: 1\n{line}\n        1\n")
    (found,) = functions_in_rules(tmp_path)
    assert found.startswith(f"workflow/rules/a.smk:4: {line.strip()} belongs into profzoo/workflow")


CHECKS: tuple[Check, ...] = (long_functions, long_modules, undescribed, nested_functions, misplaced_imports)


def said(check: Check, root: Path) -> list[str]:
    """What a check finds in a project, each with its place there: a checkout's own folder may have any name."""
    found = []
    for path in modules(root):
        place, text = path.relative_to(root), path.read_text()
        found += [f"{place}:{line}: {what}" for line, what in check(place, ast.parse(text), text)]
    return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_house_keeps_its_rules(check: Check) -> None:
    assert len(modules(import_graph.PROJECT)) > 120
    found = said(check, import_graph.PROJECT)
    assert not found, "\n".join(found)


LONG = '"""Does much."""\n\n\ndef much():\n' + "    pass\n" * FUNCTION_LINES
DECORATOR = '''"""Makes decorators."""


def times(count):
    def around(function):
        def repeated():
            return [function() for _ in range(count)]

        return repeated

    return around
'''


@pytest.mark.parametrize(
    ("check", "place", "text", "what"),
    [
        (long_functions, "profzoo/a.py", LONG, "a.py:4: much has 51 lines"),
        (long_modules, "models/a.py", '"""Counts."""\n' + "a = 1\n" * MODULE_LINES, "a.py:1: the module has 301 lines"),
        (undescribed, "profiles/x/a.py", "import os\n", "a.py:1: the module does not say"),
        (undescribed, "profzoo/a.py", '"""\nToo late."""\n', "a.py:1: the module does not say"),
        (undescribed, "profzoo/a.py", "", "a.py:1: the module does not say"),
        (nested_functions, "profzoo/a.py", DECORATOR, "a.py:4: times returns a function that returns"),
        (nested_functions, "profzoo/a.py", "a = lambda x: lambda y: lambda z: x", "a.py:1: a lambda returns"),
        (nested_functions, "profzoo/a.py", "def a():\n    def b(v):\n        return lambda w: v\n"
         "    return {'one': b, 'two': b(lambda w: 1)}\n", "a.py:1: a returns"),
        (misplaced_imports, "models/a.py", "from profzoo.harness import step_loop", "a model imports profzoo.harness.step_loop"),
        (misplaced_imports, "models/a.py", "import profzoo.run", "a model imports profzoo.run"),
        (misplaced_imports, "models/a.py", "from workflow.scripts import x", "models imports workflow.scripts.x"),
        (misplaced_imports, "workflow/scripts/a.py", "import pandas", "an adapter imports pandas"),
        (misplaced_imports, "workflow/scripts/a.py", "from models import lstm", "an adapter imports models.lstm"),
        (misplaced_imports, "profzoo/tables/a.py", "from models import lstm", "profzoo imports models.lstm"),
        (misplaced_imports, "profzoo/run.py", "def f():\n    from workflow import x", "run.py:2: profzoo imports"),
        (misplaced_imports, "profzoo/tables/a.py", "from profzoo import verdicts", "profzoo.tables imports profzoo.verd"),
        (misplaced_imports, "profzoo/tools/a.py", "import profzoo.harness.step_loop", "profzoo.tools imports profzoo.harness"),
        (misplaced_imports, "profzoo/errors.py", "from profzoo import formatting", "profzoo.errors imports profzoo.formatting"),
        (misplaced_imports, "profzoo/attic.py", "from profzoo import formatting", "profzoo.attic has no layer"),
        (misplaced_imports, "profzoo/tables/a.py", "from profzoo import attic", "profzoo.attic has no layer"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("folder", ["checkout", "profzoo", "profzoo/models/workflow/scripts"])
def test_what_breaks_a_rule_is_named(
    tmp_path: Path, folder: str, check: Check, place: str, text: str, what: str
) -> None:
    """In a checkout of any name: git calls it profzoo."""
    path = tmp_path / folder / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    found = said(check, tmp_path / folder)
    assert len(found) == 1 and what in found[0]


@pytest.mark.parametrize(
    ("check", "place", "text"),
    [
        (long_functions, "profzoo/a.py", LONG.replace("    pass\n", "", 1)),
        (nested_functions, "profzoo/a.py", "def a(rows):\n    def b(x):\n        return sorted(rows, key=lambda r: x)\n"
         "    return b\n"),
        (nested_functions, "profzoo/a.py", "def a():\n    return lambda x: sorted(x, key=lambda y: lambda z: y)\n"),
        (misplaced_imports, "models/a.py", "from profzoo.harness.tasks import tokens\nfrom models import vgg16\n"),
        (misplaced_imports, "models/run.py", "from profzoo.run import main\n"),
        (misplaced_imports, "profzoo/tables/a.py", "from profzoo import errors\nfrom profzoo.tables import b\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("folder", ["checkout", "profzoo", "profzoo/models/workflow/scripts"])
def test_what_breaks_no_rule_is_let_be(tmp_path: Path, folder: str, check: Check, place: str, text: str) -> None:
    path = tmp_path / folder / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert not said(check, tmp_path / folder)


def circles(root: Path) -> list[str]:
    """Modules of profzoo that import each other, directly or around, each circle once, as `a > b > a`."""
    files = sorted((root / "profzoo").rglob("*.py"))
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    uses = {}
    for name, path in names.items():
        # Of `from profzoo import tables` and `from profzoo.tables import CELL` what is a module.
        told = {used for _, used in imported(ast.parse(path.read_text()))}
        uses[name] = sorted({used if used in names else used.rpartition(".")[0] for used in told} & set(names))
    found: dict[frozenset[str], str] = {}

    def follow(path: list[str], done: set[str]) -> None:
        for used in uses[path[-1]]:
            if used in path:
                circle = path[path.index(used) :]
                found.setdefault(frozenset(circle), " > ".join([*circle, used]))
            elif used not in done:
                follow([*path, used], done)
        done.add(path[-1])

    done: set[str] = set()
    for name in names:
        follow([name], done)
    return list(found.values())


def test_imports_run_in_no_circle() -> None:
    assert not circles(import_graph.PROJECT)


def test_a_circle_of_imports_is_named(tmp_path: Path) -> None:
    (tmp_path / "profzoo" / "tables").mkdir(parents=True)
    texts = {
        "profzoo/__init__.py": "",
        "profzoo/one.py": "from profzoo.tables import two",
        "profzoo/tables/two.py": "from profzoo import three",
        "profzoo/three.py": "def f():\n    from profzoo.one import x",
        "profzoo/four.py": "from profzoo import one",
    }
    for place, text in texts.items():
        (tmp_path / place).write_text(text)
    (circle,) = circles(tmp_path)
    assert set(circle.split(" > ")) == {"profzoo.one", "profzoo.tables.two", "profzoo.three"}
    (tmp_path / "profzoo/three.py").write_text("import json")
    assert not circles(tmp_path)


def examples(root: Path) -> list[str]:
    """Dotted names of the modules that hold one."""
    return [
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in modules(root)
        if path.parts[len(root.parts)] in ("profzoo", "models") and ">>> " in path.read_text()
    ]


@pytest.mark.parametrize("name", examples(import_graph.PROJECT))
def test_examples_are_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed


def test_an_example_that_is_wrong_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong.py").write_text('"""Adds.\n\n>>> 1 + 1\n3\n"""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert doctest.testmod(importlib.import_module("wrong"), report=False, verbose=False).failed == 1
    finally:
        sys.modules.pop("wrong", None)
