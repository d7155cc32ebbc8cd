"""Types name the fields of what modules hand to each other: the type checker finds a misspelled one."""

import re
import subprocess
import sys

from profzoo import import_graph

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
from profzoo.cell.plan_types import Plan
from profzoo.cell.tool_types import SectionSet
from profzoo.verdicts.rule_types import Rule

def read(plan: Plan, config: Config, chosen: SectionSet, facts: Sidecar, rule: Rule) -> list[object]:
    return [
        {},
    ]
"""


def test_a_misspelled_field_is_named_with_the_one_that_was_meant() -> None:
    code = CODE.replace("{}", ",\n        ".join(MISSPELLED))
    command = [sys.executable, "-m", "mypy", "--cache-dir=/dev/null", "-c", code]
    found = subprocess.run(command, cwd=import_graph.PROJECT, capture_output=True, text=True, check=False)
    meant = re.findall(r'Did you mean "(\w+)"', found.stdout)
    assert meant == list(MISSPELLED.values()) and found.returncode == 1, found.stdout + found.stderr
