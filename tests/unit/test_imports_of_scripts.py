"""imports: the files that a script is made of are those that Python really imports for it."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo import figures, imports

SCRIPTS = sorted((imports.PROJECT / "workflow" / "scripts").glob("*.py"))
# Runs the import statements of each script in a process of its own, forked from one that has the large libraries.
SEEN = """
import importlib, json, os, sys
for name in ("jinja2", "jsonschema", "matplotlib.pyplot", "pandas", "seaborn", "yaml"):
    importlib.import_module(name)
for script, imported in json.loads(sys.argv[1]).items():
    if not os.fork():
        exec(imported)
        names = [name for name in sys.modules if name.partition(".")[0] in ("models", "profzoo")]
        print(json.dumps([script, [sys.modules[name].__file__ for name in names]]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(script)
"""


def made_of(path: Path) -> set[Path]:
    """The files of Python that a script is made of."""
    return {file for file in imports.made_of(str(path.relative_to(imports.PROJECT))) if file.suffix == ".py"}


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[Path]]:
    """The project's files that Python has imported once it has run the import statements of a script, by its name, and
    what its modules import by name, once they run."""
    imported = {}
    for script in SCRIPTS:
        nodes = [node for node in ast.parse(script.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        named = {file for module in made_of(script) for file in imports.named_files(module) if file.suffix == ".py"}
        names = [".".join(one.relative_to(imports.PROJECT).with_suffix("").parts) for one in sorted(named)]
        imported[script.stem] = "\n".join([*map(ast.unparse, nodes), *(f"import {name}" for name in names)])
    command = [sys.executable, "-c", SEEN, json.dumps(imported)]
    lines = subprocess.check_output(command, cwd=imports.PROJECT, text=True).splitlines()
    return {name: set(map(Path, files)) for name, files in map(json.loads, lines)}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_made_of_what_python_imports_for_it(loaded: dict[str, set[Path]], path: Path) -> None:
    assert loaded[path.stem] == made_of(path) - {path}


def test_a_module_is_made_of_the_files_that_it_names() -> None:
    assert imports.PROJECT / "profzoo/verdicts/rules.yaml" in imports.made_of("workflow/scripts/tabulate_verdicts.py")
    assert imports.PROJECT / "profzoo/report/page.html.j2" in imports.made_of("workflow/scripts/write_report.py")


def test_every_figure_is_a_module_that_draws() -> None:
    assert all("def draw(" in figure.path.read_text() for figure in figures.known().values())


def test_every_rule_with_a_script_names_what_it_is_made_of() -> None:
    rules = "".join(path.read_text() for path in (imports.PROJECT / "workflow" / "rules").glob("*.smk")).split(
        "\nrule "
    )
    scripted = 0
    for rule in rules[1:]:
        if script := rule.partition('"../scripts/')[2].partition('"')[0]:
            scripted += 1
            assert f'code("workflow/scripts/{script}"' in rule, rule.partition(":")[0]
    assert scripted == len(SCRIPTS)


@pytest.mark.parametrize("path", sorted((imports.PROJECT / "profzoo").rglob("*.py")), ids=lambda path: path.stem)
def test_who_goes_through_all_tools_names_their_modules(path: Path) -> None:
    part = {"activities": "activity", "compared": "activity", "failures": "failures", "doctors": "doctor"}
    asked = {part[name] for name in re.findall(r"\b(?:tools|registry)\.(\w+)\(\)", path.read_text()) if name in part}
    named = {file.stem for file in imports.named_files(path)}
    assert asked <= named or path.parent.name == "tools", f"FILES lacks {asked - named}"
