"""imports: the files that a script is made of are those that Python really imports for it."""

import re
from pathlib import Path

import pytest

from profzoo import figures, import_graph
from tests import slow
from tests.loaded_files import loaded

SCRIPTS = sorted((import_graph.PROJECT / "workflow" / "scripts").glob("*.py"))


@pytest.mark.parametrize("path", slow.first(SCRIPTS, 6), ids=lambda path: path.stem)
def test_a_script_is_made_of_what_python_imports_for_it(path: Path) -> None:
    made_of = {
        file for file in import_graph.files_of(str(path.relative_to(import_graph.PROJECT))) if file.suffix == ".py"
    }
    # What its modules import by name, once they run.
    named = {file for module in made_of for file in import_graph.declared_files(module) if file.suffix == ".py"}
    assert loaded(path, sorted(named)) == made_of - {path}


def test_a_module_is_made_of_the_files_that_it_names() -> None:
    assert import_graph.PROJECT / "profzoo/verdicts/rules.yaml" in import_graph.files_of(
        "workflow/scripts/tabulate_verdicts.py"
    )
    assert import_graph.PROJECT / "profzoo/report/page.html.j2" in import_graph.files_of(
        "workflow/scripts/write_report.py"
    )


def test_every_figure_is_a_module_that_draws() -> None:
    assert all("def draw(" in figure.path.read_text() for figure in figures.all_figures().values())


def test_every_rule_with_a_script_names_what_it_is_made_of() -> None:
    written = "".join(path.read_text() for path in (import_graph.PROJECT / "workflow" / "rules").glob("*.smk"))
    rules = re.split(r"\n(?:rule|checkpoint) ", written)
    scripted = 0
    for rule in rules[1:]:
        if script := rule.partition('"../scripts/')[2].partition('"')[0]:
            scripted += 1
            assert f'code("workflow/scripts/{script}"' in rule, rule.partition(":")[0]
    assert scripted == len(SCRIPTS)


@pytest.mark.parametrize("path", sorted((import_graph.PROJECT / "profzoo").rglob("*.py")), ids=lambda path: path.stem)
def test_who_goes_through_all_tools_names_their_modules(path: Path) -> None:
    part = {"activities": "activity", "compared": "activity", "failures": "failures", "doctors": "doctor"}
    asked = {part[name] for name in re.findall(r"\b(?:tools|registry)\.(\w+)\(\)", path.read_text()) if name in part}
    named = {file.stem for file in import_graph.declared_files(path)}
    assert asked <= named or path.parent.name == "tools", f"FILES lacks {asked - named}"
