"""Joins rules into a rule whose job runs their scripts in one process.

A job takes longer to begin than to make most tables. Inputs, outputs, logs and parameters stand in the rules that are
joined; in the joint rule each has the name of its rule before its own (`export_nsys__csv`). A rule may be joined
several times, with another value of a wildcard each, which stands behind its name (`draw_figure__classes__svg`). Each
output gets the record that its own rule would write, so that either rule may make a file, and neither makes it again
after the other.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from profzoo.range_names import IMPORTED
from profzoo.records.derived_outputs import INSIDE, SEPARATOR
from profzoo.workflow import snakemake_internals as internals
from profzoo.workflow.patterns import match_any
from profzoo.workflow.selection import Wildcards

# Targets that need what joint rules make. A run that asks for a cell's file makes no more than that file.
WHOLE = ("all", "report", "import")
# The name of a rule's inputs without a name: the script and what it imports.
CODE = "code"


@dataclass(frozen=True)
class Joined:
    """A rule that is joined; fixed: values of its wildcards that are not wildcards of the joint rule."""

    rule: Any
    fixed: Mapping[str, str]

    def know(self, wildcards: Wildcards) -> Any:
        """Return its wildcards, by those of the joint rule."""
        return internals.make_wildcards({**dict(wildcards.items()), **self.fixed})

    def fix(self, path: Any) -> Any:
        """Put the fixed wildcards into a pattern of a file, which keeps its marks."""
        return internals.replace_wildcards(path, self.fixed)


@dataclass(frozen=True)
class JointRule:
    """Rules by their names in the joint rule, in the order in which a job runs them.

    results: the results folder, `<results>` in rules.
    """

    parts: Mapping[str, Joined]
    results: str = "results"

    @property
    def rules(self) -> list[str]:
        """The names of the rules."""
        return list(dict.fromkeys(one.rule.name for one in self.parts.values()))

    def list_inputs(self, wildcards: Wildcards) -> dict[str, Any]:
        """List the inputs of a job by their names, for Snakemake's `unpack`; what it makes itself is none of them."""
        made = self._made(wildcards)
        found = {}
        for part, name, files in self._all_inputs(wildcards):
            several = [files] if isinstance(files, str) else list(files)
            others = [path for path in several if self._place(path) not in made]
            # A name without files is an input too.
            if others or not several:
                found[f"{part}{SEPARATOR}{name}"] = files if len(others) == len(several) else others
        return found

    def list_inside(self, wildcards: Wildcards) -> dict[str, dict[str, str | list[str]]]:
        """List the inputs of parts, by part and name, of which other parts make at least one."""
        made, found = self._made(wildcards), dict[str, dict[str, str | list[str]]]()
        for part, name, files in self._all_inputs(wildcards):
            places = self._place(files) if isinstance(files, str) else [self._place(path) for path in files]
            if not made.isdisjoint([places] if isinstance(places, str) else places):
                found.setdefault(part, {})[name] = places
        return found

    def _all_inputs(self, wildcards: Wildcards) -> Iterable[tuple[str, str, Any]]:
        for part, one in self.parts.items():
            for name, files in internals.list_inputs(one.rule, one.know(wildcards)):
                yield part, name or CODE, files

    def _made(self, wildcards: Wildcards) -> set[str]:
        return {self._place(str(path).format_map(dict(wildcards.items()))) for path in self.outputs.values()}

    def _place(self, path: Any) -> str:
        return str(path).replace("<results>", self.results)

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs by their names, with the wildcards of the joint rule."""
        return {
            f"{part}{SEPARATOR}{name}": one.fix(path)
            for part, one in self.parts.items()
            for name, path in one.rule.output.items()
        }

    @property
    def logs(self) -> dict[str, str]:
        """The log of each rule, by the rule's name."""
        return {part: str(one.fix(one.rule.log[0])) for part, one in self.parts.items()}

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by their names: values, or functions of wildcards."""
        own = {
            f"{part}{SEPARATOR}{name}": _bind(value, one) if internals.is_function(value) else value
            for part, one in self.parts.items()
            for name, value in one.rule.params.items()
        }
        return own | {INSIDE: self.list_inside}


def _bind(value: Callable[[Wildcards], Any], one: Joined) -> Callable[[Wildcards], Any]:
    return lambda wildcards: value(one.know(wildcards))


@dataclass(frozen=True)
class Joiner:
    """Joins rules of the selected cells.

    known: Snakemake's rules by name. files: patterns of the files that a report of these cells needs, such as
    `{phase}.kernels.csv`. section_set: the section set whose tables are joined. cells: constraints of wildcards.
    results: the results folder.
    """

    known: Mapping[str, Any]
    files: Collection[str]
    section_set: str
    cells: Mapping[str, str]
    results: str = "results"

    def join(self, *names: str, first: Sequence[str] = ()) -> JointRule:
        """Join those of the rules that make a file which a report needs, behind others that come first in any case.

        Rules that this run does not have, as one that collects nothing, are left out.
        """
        there = [name for name in (*first, *names) if name in self.known]
        parts = {name: Joined(self.known[name], {"set": self.section_set}) for name in there}
        needed = {
            name: one
            for name, one in parts.items()
            if name in first or {PurePath(str(one.fix(path))).name for path in one.rule.output} & set(self.files)
        }
        return JointRule(needed, self.results)

    def join_each(self, name: str, wildcard: str, values: Iterable[str]) -> JointRule:
        """Join a rule with itself, for each of these values of a wildcard."""
        parts = {f"{name}{SEPARATOR}{value}": Joined(self.known[name], {wildcard: value}) for value in values}
        return JointRule(parts, self.results)

    def join_absent(self, names: Iterable[str], needed: Iterable[str]) -> JointRule:
        """Join those of the rules, which have no wildcards, that the needed files depend on and that have made nothing.

        names: the rules in an order in which none reads what a later one makes.
        """
        wanted, parts = {path.replace("<results>", self.results) for path in needed}, dict[str, Joined]()
        for name in reversed([*names]):
            made = {str(path) for path in self.known[name].output}
            if made & wanted:
                if not any(map(os.path.exists, made)):
                    parts[name] = Joined(self.known[name], {})
                for _, files in internals.list_inputs(self.known[name], internals.make_wildcards({})):
                    several = [files] if isinstance(files, str) else files
                    wanted |= {str(path).replace("<results>", self.results) for path in several}
        return JointRule(dict(reversed(parts.items())), self.results)


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
