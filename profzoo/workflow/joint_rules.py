"""Joins rules of one cell into a rule whose job runs their scripts in one process.

A job takes longer to begin than to make most of a cell's tables. Inputs, outputs, logs and parameters stand in the
rules that are joined; in the joint rule each has the name of its rule before its own (`export_nsys__csv`). Each output
gets the record that its own rule would write, so that either rule may make a file, and neither makes it again after the
other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from profzoo.range_names import IMPORTED
from profzoo.records.derived_outputs import SEPARATOR
from profzoo.workflow import snakemake_internals as internals
from profzoo.workflow.patterns import match_any
from profzoo.workflow.selection import Wildcards

# Targets that need what joint rules make. A run that asks for a cell's file makes no more than that file.
WHOLE = ("all", "report", "import")
# The name of a rule's inputs without a name: the script and what it imports.
CODE = "code"


@dataclass(frozen=True)
class JointRule:
    """Rules of one cell by their names, in the order in which a job runs them.

    rules: Snakemake's rules. fixed: values of their wildcards that are not wildcards of the joint rule, such as the
    section set.
    """

    rules: Mapping[str, Any]
    fixed: Mapping[str, str]

    def list_inputs(self, wildcards: Wildcards) -> dict[str, Any]:
        """List the inputs of a job by their names, for Snakemake's `unpack`."""
        known = internals.make_wildcards({**dict(wildcards.items()), **self.fixed})
        return {
            f"{rule}{SEPARATOR}{name or CODE}": files
            for rule, one in self.rules.items()
            for name, files in internals.list_inputs(one, known)
        }

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs by their names, with the wildcards of a cell."""
        return {
            f"{rule}{SEPARATOR}{name}": self.fix(path)
            for rule, one in self.rules.items()
            for name, path in one.output.items()
        }

    @property
    def logs(self) -> dict[str, str]:
        """The log of each rule, by the rule's name."""
        return {rule: self.fix(one.log[0]) for rule, one in self.rules.items()}

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by their names: values, or functions of wildcards."""
        return {
            f"{rule}{SEPARATOR}{name}": value for rule, one in self.rules.items() for name, value in one.params.items()
        }

    def fix(self, path: Any) -> str:
        """Put the fixed wildcards into a pattern of a file."""
        text = internals.strip_constraints(path)
        for name, value in self.fixed.items():
            text = text.replace(f"{{{name}}}", value)
        return text


@dataclass(frozen=True)
class Joiner:
    """Joins rules of the selected cells.

    known: Snakemake's rules by name. files: patterns of the files that a report of these cells needs, such as
    `{phase}.kernels.csv`. section_set: the section set whose tables are joined. cells: constraints of wildcards.
    """

    known: Mapping[str, Any]
    files: Collection[str]
    section_set: str
    cells: Mapping[str, str]

    def join(self, *names: str) -> JointRule:
        """Join those of the rules that make a file which a report needs."""
        one = JointRule({}, {"set": self.section_set})
        made = {name: {PurePath(one.fix(path)).name for path in self.known[name].output} for name in names}
        rules = {name: self.known[name] for name in names if made[name] & set(self.files)}
        return JointRule(rules, one.fixed)


def match_joint_cells(available: Mapping[tuple[str, str], Collection[str]], apart: Collection[str]) -> dict[str, str]:
    """Return constraints that match the selected cells which all have what joint rules read.

    available: tools that have measured each model and phase; imported cells may each have others. apart: models whose
    training runs on several GPUs, or whose imported reports are of another form than traces.
    """
    every = set().union(*available.values())
    models = {model for (model, phase), own in available.items() if phase != IMPORTED or every <= set(own)}
    return {"model": match_any(sorted(models - {*apart})) or "no_cell", "phase": f"train|inference|{IMPORTED}"}


def asks_for_all(words: Sequence[str], results: str, others: Collection[str]) -> bool:
    """Return whether a command line asks for the whole report, and for no single file or other target.

    words: Snakemake's command line. others: names of rules, of which those in WHOLE count as the whole.

    >>> asks_for_all(["-j1"], "results", ["tables"]), asks_for_all(["report", "-n"], "results", ["report", "tables"])
    (True, True)
    >>> asks_for_all(["results/lstm/train.kernels.csv"], "results", []), asks_for_all(["tables"], "results", ["tables"])
    (False, False)
    """
    narrow = set(others) - set(WHOLE)
    return not any(word in narrow or word.removeprefix("./").startswith(f"{results}/") for word in words)
