"""Selections as a run has them, for tests of profzoo/workflow, Snakemake's wildcards, and its runs in forks."""

import multiprocessing
import os
import sys
from dataclasses import replace
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import snakemake.cli
from snakemake.iocontainers import Wildcards

from profzoo import tools
from profzoo.compare import sides
from profzoo.config import configuration
from profzoo.workflow.section_sets import SectionSets
from profzoo.workflow.selection import Selection
from profzoo.workflow.tables import Tables
from tests.workflow.project import heed_interrupts


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
    return Wildcards(fromdict={"model": "lstm", "phase": "train"} | given)


def section_sets(run: Selection, dryrun: bool = True) -> SectionSets:
    """Inputs of ncu's rules, where a checkpoint raises KeyError and ancient files are marked by a tuple."""
    return SectionSets(run, lambda **cell: {}[tuple(cell.values())], lambda files: ("ancient", files), lambda: dryrun)


def tables(run: Selection) -> Tables:
    return Tables(run, section_sets(run))


def fork_snakemake(folder: Path, *words: str) -> ForkProcess:
    """Run Snakemake in a folder, in a group of processes of its own; what it says goes to `said.ID` beside the folder."""
    run = multiprocessing.get_context("fork").Process(target=_run_snakemake, args=(folder, words))
    run.start()
    return run


def _run_snakemake(folder: Path, words: tuple[str, ...]) -> None:
    os.setsid()
    heed_interrupts()
    os.chdir(folder)
    sys.stdout = sys.stderr = Path(f"{folder}.said.{os.getpid()}").open("w", buffering=1)  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    snakemake.cli.main(["-j1", *words])
