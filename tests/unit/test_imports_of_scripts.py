"""lib/imports: the files that a script is made of are those that Python really imports for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from workflow.scripts.lib import imports

SCRIPTS = imports.PROJECT / "workflow" / "scripts"
SEEN = """
import sys, {module}
names = [name for name in sys.modules if name.partition(".")[0] in ("models", "workflow")]
print(*{{sys.modules[name].__file__ for name in names}}, sep="\\n")
"""


def loaded(module: str) -> set[Path]:
    """The project's files that Python has imported once it has imported the module."""
    command = [sys.executable, "-c", SEEN.format(module=module)]
    return {Path(line) for line in subprocess.check_output(command, cwd=imports.PROJECT, text=True).splitlines()}


@pytest.mark.parametrize(
    "name", sorted(path.name for path in SCRIPTS.glob("*.py") if "snakemake" in path.read_text().split("\n\nif")[-1])
)
def test_a_script_is_made_of_what_python_imports_for_it(name: str) -> None:
    assert loaded(f"workflow.scripts.{Path(name).stem}") == set(imports.of_script(name))


def test_every_rule_with_a_script_names_what_it_is_made_of() -> None:
    rules = "".join(path.read_text() for path in (imports.PROJECT / "workflow" / "rules").glob("*.smk")).split(
        "\nrule "
    )
    scripted = 0
    for rule in rules[1:]:
        if script := rule.partition('"../scripts/')[2].partition('"')[0]:
            scripted += 1
            assert f'code("{script}")' in rule, rule.partition(":")[0]
    assert scripted == len([path for path in SCRIPTS.glob("*.py") if 'if "snakemake" in' in path.read_text()])
