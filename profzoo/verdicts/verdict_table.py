"""Make tables/verdicts.csv: verdicts on every cell, its top kernels and layers, from the tables of all cells."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from profzoo.fusion import table as fusion
from profzoo.io import csv_tables as reading
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.tables import layer_kernels, schemas
from profzoo.tables import layers as layer_tables
from profzoo.tables.cell_tables import cell_key
from profzoo.tables.roofline import read_peaks
from profzoo.tables.user_ranges import select_parts
from profzoo.tools.ncu import details_page as ncu_details
from profzoo.tools.ncu import export_schema
from profzoo.tools.torch import tables as torch_tables
from profzoo.verdicts import clock_verdicts, cpu_verdicts, verdicts, wait_table
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.cell_facts import CellFacts, read_cell_facts
from profzoo.verdicts.noted_facts import add_activities
from profzoo.what_if import storage


def main(
    steps: str,
    kernels: str,
    roofline: str | None,
    peaks: str | None,
    details: Sequence[str],
    launches: Sequence[str],
    sidecars: Sequence[str],
    layers: tuple[Sequence[str], Sequence[str]],
    programs: Sequence[str],
    on_cpus: tuple[str, str, Sequence[str]],
    csv: str,
    waits: str,
    chains: tuple[Sequence[str], Sequence[str]] = ((), ()),
    activities: Sequence[str] = (),
) -> None:
    """Read the tables, write the verdicts (csv) and the lines that wait (waits).

    details: ncu's details pages, which may hold no advice; launches: exported launches of the same reports, in the same
    order; sidecars: of the unprofiled runs; layers: kernels by owner, and the trees of layers, in the same order;
    programs: of traced steps; on_cpus: the tables of cells and of ranges, and operators of each cell; chains: what
    could be fused, and the kernels of that, in the same order; activities: operators by torch.profiler.
    """
    rates = read_peaks(peaks) if peaks else {}
    held = schemas.read_table("roofline", roofline) if roofline else None
    advice = {
        cell_key(page): (ncu_details.read_details(page), reading.read(rows, export_schema.TABLE))
        for page, rows in zip(details, launches, strict=True)
    }
    facts = read_cell_facts(sidecars)
    kernel_table = schemas.read_table("kernels", kernels)
    trees = _read_pairs(layers, layer_kernels.TABLE, layer_tables.TABLE)
    rules = verdict_rules.load_rules()
    timed = clock_verdicts.add_clocks(schemas.read_table("steps", steps), schemas.read_table("cells", on_cpus[0]))
    known = {cell_key(path): storage.read(path) for path in programs}
    write_csv(wait_table.tabulate_waits(facts.lines, known), waits)
    fusible = _read_pairs(chains, fusion.CHAINS, fusion.KERNELS)
    traced = {cell_key(path): reading.read(path, torch_tables.TABLE) for path in activities}
    facts = replace(facts, noted=add_activities(facts.noted, traced))
    given = (timed, kernel_table, held, rates, advice, facts.ran_with, rules, trees, known)
    found = [verdicts.tabulate_verdicts(*given, lines=facts.lines, chains=fusible, facts=facts)]
    found.append(_judge_cpu_cells(*on_cpus, facts))
    write_csv(pd.concat([table for table in found if len(table)] or found[:1], ignore_index=True), csv)


def _read_pairs(
    files: tuple[Sequence[str], Sequence[str]], *tables: Table
) -> dict[verdicts.CellKey, tuple[pd.DataFrame, pd.DataFrame]]:
    """Return two tables of each cell; files: of both kinds, in the same order."""
    first, second = tables
    return {
        cell_key(one): (reading.read(one, first), reading.read(other, second))
        for one, other in zip(*files, strict=True)
    }


def _judge_cpu_cells(cells: str, ranges: str, operators: Sequence[str], facts: CellFacts) -> pd.DataFrame:
    """Return the verdicts on cells that ran on a CPU; only their operators are read."""
    timed, parts = schemas.read_table("cells", cells), select_parts(schemas.read_table("ranges", ranges))
    chosen = cpu_verdicts.cpu_cells(parts)
    own = {
        cell_key(path): reading.read(path, layer_tables.OPERATORS_TABLE)
        for path in operators
        if cell_key(path) in chosen
    }
    rules = verdict_rules.load_rules()
    return cpu_verdicts.tabulate_cpu_verdicts(timed, parts, own, facts.ran_with, rules, facts)
