"""docs/reliability: every test that it names is there, every test of faults is named, and there are sixty kinds."""

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "how" / "reliability.md").read_text()
# What one row brings about by several cases counts as many kinds.
KINDS = 60
# Of what goes well.
EXEMPT = {"test_two_jobs_that_share_a_folder_of_temporary_files"}


def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)
    assert named and not [name for name in named if name[1] not in functions(PROJECT / name[0])]
    files = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    assert all((PROJECT / file).is_file() for file in files)


def test_what_programs_and_their_surroundings_do_is_on_the_page() -> None:
    for name in ("programs", "surroundings", "profilers", "weights"):
        path = f"tests/faults/test_{name}.py"
        assert all(f"::{test}`" in PAGE for test in functions(PROJECT / path) - EXEMPT), functions(PROJECT / path)


def test_there_are_sixty_kinds() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    kinds = [kind for row in rows for kind in re.split(r"[;,]| or | and ", row.split("|")[1]) if kind.strip()]
    assert len(kinds) >= KINDS, len(kinds)


def test_the_readme_leads_there() -> None:
    assert "(docs/how/reliability.md)" in (PROJECT / "README.md").read_text()
