"""Holds the command lines that several rules share, and names files in their words."""

import shlex
from collections.abc import Sequence
from typing import Any

from profzoo.cell.config_types import Config
from profzoo.compare.sides import Side
from profzoo.workflow.selection import Wildcards

# What runs all collecting jobs: it builds the command line of the job's tool, and leaves the sidecar. Tools print
# numbers and messages as they are read here in this locale alone.
COLLECT = "LC_ALL=C python -m profzoo.collect --job {params.job:q} --log {log:q} {params.more:q} {params.made:q}"

# The end of another rule's command, which has written each output with `.partial` behind its name: it puts them in
# their places, and leaves a record of what they were made of.
KEEP = " && python -m profzoo.records.keep --log {log:q} --input {input:q} --output {output:q}"


def name_outputs(wildcards: Wildcards, output: Any) -> list[str]:
    """The words that name what a collecting job makes."""
    return [f"{name}={path}" for name, path in output.items()]


def name_loaded(wildcards: Wildcards, input: Any) -> list[str]:
    """The words that name what a collecting job starts with: weights, and a plan, where there are such."""
    given = {"--load": input.get("weights"), "--plan": input.get("plan")}
    return [word for option, path in given.items() if path for word in (option, str(path))]


def name_loaded_of_sides(sides: Sequence[Side], input: Any) -> list[str]:
    """The words that name the weights which each side of a comparison starts with, where there are such."""
    pairs = zip(sides, input.get("weights", []), strict=False)
    return [word for side, path in pairs for word in ("--weights", f"{side.name}={path}")]


def name_parts(input: Any) -> list[str]:
    """The words that name the table of a comparison's parts, where there is one."""
    return ["--parts", input.parts] if input.parts else []


def name_failing(config: Config) -> list[str]:
    """The words that say by which verdicts a comparison fails, where any is configured."""
    return ["--fail-on", config["fail_on"]] if config["fail_on"] else []


def quote_reports(report: str | None = None, below: str | None = None) -> str:
    """Shell patterns of ncu's reports: of one, and of those in a folder, where they are given.

    >>> quote_reports("a b.ncu-rep", "more")
    "'a b.ncu-rep' more/*.ncu-rep"
    """
    one = [shlex.quote(report)] if report else []
    return " ".join([*one, *([f"{shlex.quote(below)}/*.ncu-rep"] if below else [])])
