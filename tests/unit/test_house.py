"""The house's own rules: how long code may be, what may import what, and that every example in it is true."""

import ast
import doctest
import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from profzoo import tools
from profzoo.records import import_graph
from tests import parsed

ROOMS = ("profzoo", "models", "workflow/scripts", "profiles")
FUNCTION_LINES, MODULE_LINES = 50, 600
# What profzoo holds, from the bottom up: a part imports those of lines above its own, none of its own line or below.
LAYERS = (
    ("errors", "formatting", "json_types", "range_names", "versions"),
    ("extensions", "statistics"),
    ("records",),
    ("io",),
    ("machine",),
    ("cell", "op_costs"),
    ("harness", "tools"),
    ("calibration", "experiments", "kernels", "script_harness", "what_if"),
    ("foreign_reports", "launches"),
    ("config", "tables"),
    ("fusion",),
    ("compare", "verdicts"),
    ("plans",),
    ("trials",),
    ("catalog",),
    ("figures",),
    ("report",),
    ("collect", "document", "run"),
    ("workflow",),
    ("results", "terminal"),
    ("referee",),
    ("cli",),
    ("__main__",),
)
# What the zoo may import of profzoo, by prefixes; `python -m models.run` is the zoo's command line.
OF_MODELS = ("profzoo.harness.interface", "profzoo.harness.tasks", "profzoo.errors")
COMMAND_LINE = {"models/run.py": ("profzoo.run",)}
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# Of a file's place in the project, the nodes that it parses to, the module first, and its text: lines, and what is wrong.
Check = Callable[[Path, list[ast.AST], str], Iterator[tuple[int, str]]]


def modules(root: Path) -> list[Path]:
    """The modules that rules are about."""
    return sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))


def long_functions(place: Path, nodes: list[ast.AST], text: str) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield node.lineno, f"{node.name} has {lines} lines, of {FUNCTION_LINES}: split it"


def long_modules(place: Path, nodes: list[ast.AST], text: str) -> Iterator[tuple[int, str]]:
    lines = len(text.splitlines())
    if lines > MODULE_LINES:
        yield 1, f"the module has {lines} lines, of {MODULE_LINES}: split it"


def undescribed(place: Path, nodes: list[ast.AST], text: str) -> Iterator[tuple[int, str]]:
    if not (ast.get_docstring(nodes[0], clean=False) or "").split("\n")[0].strip():  # type: ignore[arg-type]
        yield 1, "the module does not say in its first line what it is for"


def nested_functions(place: Path, nodes: list[ast.AST], text: str) -> Iterator[tuple[int, str]]:
    functions = [node for node in nodes if isinstance(node, Function)]
    for node in functions:
        # Only one that holds two others can return a function that returns one, and few do.
        held = sum(node.lineno <= one.lineno <= (node.end_lineno or 0) for one in functions)
        if held > 2 and any(list(returned(inner)) for inner in returned(node)):
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


def imported(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """The modules that a file imports; of `from package import name` both the package's and what may be a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not used here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def misplaced_imports(place: Path, nodes: list[ast.AST], text: str) -> Iterator[tuple[int, str]]:
    """Imports that run against the others."""
    room = next(room for room in ROOMS if place.is_relative_to(room))
    inside = place.relative_to(room)
    for line, name in imported(nodes):
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


ASSIGNED = re.compile(r"^(\w+(?:, \w+)*)(?:: [^=\n]+)? = ", re.M)
IMPORTED = re.compile(r"^ *(from \S+ )?import (\([^)]*\)|[^(\n]+)$", re.M)


def names_with_two_meanings(root: Path) -> list[str]:
    """Names that two files of rules give a meaning of their own: Snakemake has one namespace for all of its files."""
    meanings: dict[str, set[str]] = {}
    for path in sorted([*(root / "workflow").rglob("*.smk"), *root.glob("Snakefile")]):
        own = [(str(path.relative_to(root)), names) for names in ASSIGNED.findall(path.read_text())]
        for source, names in [*own, *IMPORTED.findall(path.read_text())]:
            for name in names.strip("()\n, ").split(","):
                meanings.setdefault(name.split(" as ")[-1].strip(), set()).add(source.strip())
    return [f"{name}: {', '.join(sorted(of))}" for name, of in sorted(meanings.items()) if len(of) > 1]


def test_a_name_of_rules_has_one_meaning(tmp_path: Path) -> None:
    assert names_with_two_meanings(import_graph.PROJECT) == []
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow/a.smk").write_text(
        "from x import (\n    ONE,\n    two as three,\n)\nA, B = 1, 2\nC: int = 1\n"
    )
    (tmp_path / "workflow/b.smk").write_text(
        "if True:\n    from x import ONE\nB = 3\nrule all:\n    input:\n        C = 1\n"
    )
    (tmp_path / "Snakefile").write_text("import os\nthree = 3\n")
    assert names_with_two_meanings(tmp_path) == ["B: workflow/a.smk, workflow/b.smk", "three: Snakefile, from x"]


@pytest.mark.parametrize(
    "line", ["def f():", "    def f(x):", "async def f():", "class A:", "    runtime=lambda wildcards, attempt:"]
)
def test_a_function_in_a_file_of_rules_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "workflow/rules").mkdir(parents=True)
    (tmp_path / "workflow/rules/a.smk").write_text(f"# def\nrule a:\n    input: lambda w: 1\n{line}\n        1\n")
    (found,) = functions_in_rules(tmp_path)
    assert found.startswith(f"workflow/rules/a.smk:4: {line.strip()} belongs into profzoo/workflow")


# Why a word stands in quotes that is a tool's name, and in how many places of a file.
OF_TORCH = "the package torch, such as its version in sidecars"
OF_DATA = "samples of the data, or the function of a model that makes them"
OF_TIMES = "a duration: a key of what the page shows, or the flag of a disagreement"
LOWEST = "the home of the baseline's name and of what tools do, below all tools"
NO_HIGHER = "jobs of no tool have the baseline's limit; the machine is below the registry of tools"
GENERATED = "types that `make docs` writes from what tools can be set to"
# Where the files of each tool are read: the tools themselves, and what converts reports that were made elsewhere.
OF_TOOLS = (
    "profzoo/tools/",
    "profzoo/foreign_reports/",
    "profzoo/config/imported_reports.py",
    "profzoo/workflow/imported.py",
)
QUOTED: dict[tuple[str, str], tuple[int, str]] = {
    ("profzoo/calibration/peaks.py", "torch"): (1, OF_TORCH),
    ("profzoo/collect/job_run.py", "torch"): (1, OF_TORCH),
    ("profzoo/compare/comparison_table.py", "torch"): (2, OF_TORCH),
    ("profzoo/experiments/interleaved_runs.py", "torch"): (1, OF_TORCH),
    ("profzoo/harness/devices.py", "torch"): (1, OF_TORCH),
    ("profzoo/referee/history.py", "torch"): (1, OF_TORCH),
    ("profzoo/report/page.py", "torch"): (1, OF_TORCH),
    ("profzoo/script_harness/startup/sitecustomize.py", "torch"): (3, OF_TORCH),
    ("profzoo/cli/redaction.py", "torch"): (1, OF_TORCH),
    ("profzoo/versions.py", "torch"): (2, OF_TORCH),
    ("profzoo/cell/registry.py", "sample"): (2, OF_DATA),
    ("profzoo/compare/comparison_table.py", "sample"): (1, OF_DATA),
    ("profzoo/figures/comparison.py", "sample"): (1, OF_DATA),
    ("profzoo/harness/step/batches.py", "sample"): (1, OF_DATA),
    ("profzoo/report/cell_section.py", "time"): (2, OF_TIMES),
    ("profzoo/tables/across_cells.py", "time"): (2, OF_TIMES),
    ("profzoo/cell/schema.py", "time"): (2, LOWEST),
    ("profzoo/cell/schema.py", "sample"): (1, LOWEST),
    ("profzoo/cell/tool_types.py", "ncu"): (1, GENERATED),
    ("profzoo/cell/tool_types.py", "nsys"): (1, GENERATED),
    ("profzoo/machine/job_limits.py", "time"): (1, NO_HIGHER),
}
# Calls that declare columns, whose values say which tool the numbers are from.
OF_COLUMNS = ("Column", "select", "shared")
# Rules of a tool whose own names do not have its name in them.
OWN_RULES = {"print_probe": "ncu", "metrics": "ncu"}
RULE = re.compile(r"(?:rule|checkpoint) (?P<name>\w+)\b|use rule \w+ as (?P<used>\w+)\b")


def tools_in_modules(root: Path, names: Collection[str]) -> Iterator[tuple[str, str, int]]:
    """File, name and line of each quoted name of a tool outside profzoo/tools; columns may say whose they are."""
    for path in modules(root):
        place = path.relative_to(root).as_posix()
        if place.startswith(OF_TOOLS):
            continue
        nodes = parsed.nodes(path)
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        columns = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id in OF_COLUMNS]
        let_be = {id(value) for one in columns for value in [*one.args, *(word.value for word in one.keywords)]}
        for node in nodes:
            if isinstance(node, ast.Constant) and node.value in names and id(node) not in let_be:
                yield place, str(node.value), node.lineno


def tools_in_rules(root: Path, names: Collection[str]) -> Iterator[str]:
    """Quoted names of tools in files of rules, except for rules that are the tool's own by their names."""
    quoted = re.compile(rf"[\"']({'|'.join(names)})[\"']")
    for path in sorted([*(root / "workflow").rglob("*.smk"), *root.glob("**/Snakefile")]):
        rule = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if begun := RULE.match(line):
                rule = begun["name"] or begun["used"]
            elif line[:1].strip():
                rule = ""
            own = {*rule.split("_"), OWN_RULES.get(rule)}
            if other := [name for name in quoted.findall(line) if name not in own]:
                yield f"{path.relative_to(root)}:{number}: '{other[0]}' in {f'rule {rule}' if rule else 'no rule'}"


ASK = "ask what a tool does (tools.that), provides (Selection.provides) or can be set to (tools.with_setting)"


def test_tools_are_not_told_apart_by_their_names() -> None:
    lines = list(tools_in_modules(import_graph.PROJECT, tools.names()))
    found = Counter((place, name) for place, name, _ in lines)
    known = {key: count for key, (count, _) in QUOTED.items()}
    other = {key for key in {*found, *known} if found[key] != known.get(key, 0)}
    named = [f"{place}:{line}: '{name}'" for place, name, line in lines if (place, name) in other]
    assert not other, f"{ASK}; QUOTED has the exceptions, and {sorted(other)} differ from it: {named}"
    assert not (named := list(tools_in_rules(import_graph.PROJECT, tools.names()))), f"{ASK}: {named}"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("if tool == 'nsys':\n    pass\nelif tool in ('ncu', 'time'):\n    pass\n", [1, 3, 3]),
        ("rows = f\"{config['ncu']['set']} of nsys\"\n", [1]),
        ("one = Column('Launches per step.', COUNT, 'nsys')\ntwo = Column('A', tool='torch')\n", []),
        ("one = Table('nsys')\n", [1]),
        ('"""Asks nsys.\n\n>>> ask("nsys")\n"""\n', []),
    ],
)
def test_a_quoted_name_of_a_tool_is_found(tmp_path: Path, text: str, lines: list[int]) -> None:
    for folder in ("profzoo/tables", "profzoo/tools/nsys"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").write_text(text)
    found = list(tools_in_modules(tmp_path, ("time", "ncu", "nsys", "torch")))
    assert [(place, line) for place, _, line in found] == [("profzoo/tables/a.py", line) for line in lines]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('rule export_nsys:\n    input:\n        *modules("nsys"),\n', []),
        ('rule export_nsys:\n    input:\n        *modules("ncu"),\n', ["a.smk:3: 'ncu' in rule export_nsys"]),
        ("use rule a as profile_nsys_ranks with:\n    params:\n        config['nsys'],\n", []),
        ("rule profile_nsys:\n    params:\n        1,\n\n\nown = config['nsys']\n", ["a.smk:6: 'nsys' in no rule"]),
    ],
)
def test_a_quoted_name_in_another_tools_rule_is_found(tmp_path: Path, text: str, found: list[str]) -> None:
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow/a.smk").write_text(text)
    assert list(tools_in_rules(tmp_path, ("ncu", "nsys"))) == [f"workflow/{one}" for one in found]


CHECKS: tuple[Check, ...] = (long_functions, long_modules, undescribed, nested_functions, misplaced_imports)


def said(check: Check, root: Path) -> list[str]:
    """What a check finds in a project, each with its place there: a checkout's own folder may have any name."""
    found = []
    for path in modules(root):
        place = path.relative_to(root)
        found += [f"{place}:{line}: {what}" for line, what in check(place, parsed.nodes(path), path.read_text())]
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


def checkouts(folder: Path, place: str, text: str) -> Iterator[Path]:
    """Checkouts with one module, whose folders have names that parts of the project have: git calls one profzoo."""
    for name in ("checkout", "profzoo", "deep/profzoo/models/workflow/scripts"):
        (folder / name / place).parent.mkdir(parents=True)
        (folder / name / place).write_text(text)
        yield folder / name


@pytest.mark.parametrize(
    ("check", "place", "text", "what"),
    [
        (long_functions, "profzoo/a.py", LONG, "a.py:4: much has 51 lines"),
        (long_modules, "models/a.py", '"""Counts."""\n' + "a = 1\n" * MODULE_LINES, f"a.py:1: the module has {MODULE_LINES + 1} lines"),
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
        (misplaced_imports, "profzoo/tools/a.py", "import profzoo.harness.step.step_loop", "profzoo.tools imports profzoo.harness"),
        (misplaced_imports, "profzoo/errors.py", "from profzoo import formatting", "profzoo.errors imports profzoo.formatting"),
        (misplaced_imports, "profzoo/attic.py", "from profzoo import formatting", "profzoo.attic has no layer"),
        (misplaced_imports, "profzoo/tables/a.py", "from profzoo import attic", "profzoo.attic has no layer"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_named(tmp_path: Path, check: Check, place: str, text: str, what: str) -> None:
    for root in checkouts(tmp_path, place, text):
        (found,) = said(check, root)
        assert what in found


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
def test_what_breaks_no_rule_is_let_be(tmp_path: Path, check: Check, place: str, text: str) -> None:
    assert not any(said(check, root) for root in checkouts(tmp_path, place, text))


def uses(root: Path) -> dict[str, set[str]]:
    """The modules of profzoo that each file of the project uses: a module by its dotted name, others by their place."""
    files = [*modules(root), *(root / "workflow").rglob("*.smk"), *root.glob("setup.py")]
    names = {}
    for path in files:
        place = path.relative_to(root)
        dotted = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        names[dotted if place.parts[0] == "profzoo" else place.as_posix()] = path
    found = {}
    for name, path in names.items():
        # Of `from profzoo import tables` and `from profzoo.tables import CELL` what is a module.
        told = {one for _, one in imported(parsed.nodes(path))} if path.suffix == ".py" else in_rules(path.read_text())
        found[name] = {one if one in names else one.rpartition(".")[0] for one in told} & set(names)
    return found


def in_rules(text: str) -> set[str]:
    """What a file of rules imports."""
    return {
        f"{package}.{name.split()[0]}"
        for package, listed in re.findall(r"^\s*from ([\w.]+) import (.+)$", text, re.MULTILINE)
        for name in listed.split(",")
    }


def circles(root: Path) -> list[str]:
    """Modules of profzoo that import each other, directly or around, each circle once, as `a > b > a`."""
    used_by = {name: sorted(used) for name, used in uses(root).items()}
    found: dict[frozenset[str], str] = {}

    def follow(path: list[str], done: set[str]) -> None:
        for used in used_by[path[-1]]:
            if used in path:
                circle = path[path.index(used) :]
                found.setdefault(frozenset(circle), " > ".join([*circle, used]))
            elif used not in done:
                follow([*path, used], done)
        done.add(path[-1])

    done: set[str] = set()
    for name in used_by:
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


SMALL = 60
# Modules below that size which only one other imports, and which stay apart from it: patterns of names, and why.
BY_NAME = "tools finds this part of a tool by its name, and no tool has it in another place"
ADAPTED = "its importer is an adapter of workflow/scripts, which calls profzoo and holds nothing"
APART = {
    r"profzoo\.tools\.\w+\.(activity|command|doctor|failures|files|losses|settings)": BY_NAME,
    r"profzoo\.catalog\.convert_tables": ADAPTED,
    r"profzoo\.figures\.drawing": ADAPTED,
    r"profzoo\.cli\.project_files": "setup.py runs it alone, before the package and what that needs are there",
}


def lonely(root: Path, apart: Collection[str] = ()) -> list[str]:
    """Small modules of profzoo that one other file imports, each with that file; apart: patterns of exceptions."""
    used_by = uses(root)
    found = []
    for name in sorted(used_by):
        importers = [other for other, used in used_by.items() if name in used and other != name]
        path = root / f"{name.replace('.', '/')}.py"
        if len(importers) != 1 or not path.exists() or any(re.fullmatch(pattern, name) for pattern in apart):
            continue
        if (lines := len(path.read_text().splitlines())) < SMALL:
            found.append(f"{name} has {lines} lines, and only {importers[0]} imports it: move it there")
    return found


def test_no_small_module_is_there_for_one_other() -> None:
    found = lonely(import_graph.PROJECT, APART)
    assert not found, "\n".join(found)
    every = "\n".join(lonely(import_graph.PROJECT))
    assert all(APART.values()) and [pattern for pattern in APART if not re.search(f"^{pattern} has", every, re.M)] == []


def test_a_small_module_of_one_other_is_named(tmp_path: Path) -> None:
    texts = {
        "profzoo/tables/one.py": "a = 1\n" * (SMALL - 1),
        "profzoo/tables/large.py": "a = 1\n" * SMALL,
        "profzoo/tables/shared.py": "a = 1\n",
        "profzoo/tables/ruled.py": "a = 1\n",
        "profzoo/tables/alone.py": "from profzoo.tables import large, one, shared\n",
        "workflow/rules/a.smk": "if True:\n    from profzoo.tables import shared as b, ruled\n",
    }
    for place, text in texts.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    assert lonely(tmp_path) == [
        "profzoo.tables.one has 59 lines, and only profzoo.tables.alone imports it: move it there",
        "profzoo.tables.ruled has 1 lines, and only workflow/rules/a.smk imports it: move it there",
    ]
    assert lonely(tmp_path, [r"profzoo\.tables\.(one|ruled)"]) == []


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


# Fields of what modules hand to each other, each with the one that was meant.
MISSPELLED = {
    'plan["estimate"]': "estimate_s",
    'config["ncu"]["bugdet"]': "budget",
    'chosen["section"]': "sections",
    'facts["window_wal_ns"]': "window_wall_ns",
    'rule["atleast"]': "at_least",
}
CODE = """
from profzoo.cell.config_types import Config
from profzoo.cell.job_types import Sidecar
from profzoo.cell.job_types import Plan
from profzoo.cell.tool_types import SectionSet
from profzoo.verdicts.rules.rule_types import Rule

def read(plan: Plan, config: Config, chosen: SectionSet, facts: Sidecar, rule: Rule) -> list[object]:
    return [
        {},
    ]
"""


@pytest.mark.slow
def test_a_misspelled_field_is_named_with_the_one_that_was_meant() -> None:
    code = CODE.replace("{}", ",\n        ".join(MISSPELLED))
    command = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", "-c", code]
    found = subprocess.run(command, cwd=import_graph.PROJECT, capture_output=True, text=True, check=False)
    meant = re.findall(r'Did you mean "(\w+)"', found.stdout)
    assert meant == list(MISSPELLED.values()) and found.returncode == 1, found.stdout + found.stderr
