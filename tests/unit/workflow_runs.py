"""Selections as a run has them, for tests of profzoo/workflow, and Snakemake's wildcards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from snakemake.iocontainers import Wildcards

from profzoo import tools
from profzoo.compare import sides
from profzoo.config import configuration
from profzoo.workflow.section_sets import SectionSets
from profzoo.workflow.selection import Selection
from profzoo.workflow.tables import Tables


def select(results: Path | str = "results", **given: Any) -> Selection:
    """The selection of a configuration: of lstm under ncu, nsys and torch, unless it says otherwise."""
    config = configuration.normalise_config({"models": ["lstm"], "tool": ["ncu", "nsys", "torch"]} | given)
    cells = configuration.select_cells(config)
    chosen = [tool for tool in config["tool"] if tool != tools.BASELINE]
    known = sides.sides_of(config)
    return Selection(
        config, cells, chosen, dict.fromkeys(cells, frozenset((tools.BASELINE, *chosen))), str(results), (), known,
        cells if known else (), configuration.list_multi_gpu_cells(config),
    )  # fmt: skip


def lacking(run: Selection, *names: str) -> Selection:
    """The same where some files below the folder of results cannot be made."""
    return replace(run, lost=frozenset(f"{run.results}/{name}" for name in names))


def wildcards(**given: str) -> Wildcards:
    """Those of a job of lstm's training, unless others are given."""
    return Wildcards(fromdict={"model": "lstm", "phase": "train"} | given)


def section_sets(run: Selection, dryrun: bool = True) -> SectionSets:
    """Inputs of ncu's rules, where a checkpoint raises KeyError and ancient files are marked by a tuple."""
    return SectionSets(run, lambda **cell: {}[tuple(cell.values())], lambda files: ("ancient", files), lambda: dryrun)


def tables(run: Selection) -> Tables:
    """Inputs of tables."""
    return Tables(run, section_sets(run))
