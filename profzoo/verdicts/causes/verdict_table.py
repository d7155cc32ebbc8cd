"""Make tables/verdicts.csv: verdicts on every cell, its top kernels and layers, from the tables of all cells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from profzoo.fusion import table as fusion
from profzoo.fusion.patterns import PATTERNS_OF_SHARE
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, COUNT, CPU, NINE_OF_TEN, TEXT, Column, select
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.range_names import PARTS
from profzoo.tables import cell_tables, schemas
from profzoo.tables.cell_tables import cell_key
from profzoo.tables.layers import LAYER_KERNELS_TABLE, OPERATORS_TABLE, TABLE
from profzoo.tables.roofline import read_peaks
from profzoo.tables.schemas import CELL
from profzoo.tables.user_ranges import select_parts
from profzoo.tools.ncu import export_schema
from profzoo.tools.ncu import raw_page as ncu_details
from profzoo.tools.torch import tables as torch_tables
from profzoo.verdicts.causes import cpu_verdicts, noted_verdicts, verdicts
from profzoo.verdicts.causes.verdicts import CellKey
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.cell_facts import CellFacts, add_activities, read_cell_facts
from profzoo.verdicts.rules.rule_types import KnownSettings, Rules
from profzoo.verdicts.verdict import VERDICTS_TABLE
from profzoo.what_if import program
from profzoo.what_if.graph_obstacles import first_of_each_wait
from profzoo.what_if.program import Program

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine


# Make the table of lines at which a cell's step waits for the GPU, with the time of their waits where it is known.

WAITS_TABLE = Table(
    columns={
        **shared("model", "phase"),
        "file": Column(
            TEXT, "File of the line, relative to its package or to the working folder where it lies inside."),
        "line": Column(COUNT, "Number of the line.", "count"),
        "function": Column(TEXT, "Function that the line is in."),
        "text": Column(TEXT, "The line as it is written."),
        "operation": Column(
            TEXT, "What waits there, such as `.item()`, `x[mask]`, `bool()` for a tensor in a condition."),
        "range": Column(TEXT, "Part of the step in which it waits; empty outside all parts."),
        "calls": Column(COUNT, "Waits per step, in the step of the warm-up that was observed.", "count", "time"),
        "wait_ns": Column(
            AMOUNT.or_missing, "Time per step under nsys that the host waits there; empty where the trace does not "
            "tell lines apart.", "ns", "nsys", CPU),
    },
)  # fmt: skip
COLUMNS = [*WAITS_TABLE.columns]
# By how much waits per step in the trace may differ from those of the observed step, relative.
AS_MANY = 0.1


def tabulate_waits(
    lines: "Mapping[CellKey, Sequence[BlockingLine]]", programs: Mapping[CellKey, Mapping[int, Program]]
) -> pd.DataFrame:
    """Return the table (COLUMNS), a row per cell and line.

    Args:
        lines: lines at which a step waits, by cell. programs: traced steps of each cell, by process.

    A trace does not tell which line waited. `wait_ns` is therefore known only of a line that is the only one of its
    part of the step, where the trace of a single process has as many waits in this part.
    """
    rows = []
    for cell, mine in lines.items():
        several = programs.get(cell, {})
        program = next(iter(several.values())) if len(several) == 1 else None
        for one, ns in _timed(mine, program):
            rows.append({**dict(zip(CELL, cell, strict=True)), **one, "wait_ns": ns})
    return pd.DataFrame(rows, columns=COLUMNS)


def _timed(lines: "Sequence[BlockingLine]", program: Program | None) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Yield each line with the ns per step that it waits, NaN where unknown."""
    ranges = [one["range"] for one in lines]
    for one in lines:
        alone = program is not None and ranges.count(one["range"]) == 1
        calls, ns = waits_of_part(program, one["range"]) if program and alone else (0.0, np.nan)
        yield one, ns if abs(calls - one["calls"]) <= AS_MANY * one["calls"] else np.nan


def waits_of_part(program: Program, part: str) -> tuple[float, float]:
    """Return number and time in ns of the waits per step within a part of the step; part: empty for outside all parts.

    The time is NaN if the file of the program does not hold it.
    """
    host = program.host
    mine = (host["part"] == (PARTS.index(part) + 1 if part in PARTS else 0)).to_numpy()
    first = min(1, program.steps - 1)
    counted = mine & (host["step"] >= first).to_numpy()
    steps = program.steps - first
    calls = float((first_of_each_wait(program) & counted).sum()) / steps
    if "waited" not in host:
        return calls, np.nan
    return calls, float(host["waited"].to_numpy(dtype=float)[counted].sum()) / steps


# Makes tables/fusion.csv: what could be fused in all cells, with the verdict and the advice on each chain.

ADVISED = ["verdict", "advice", "settings"]
FUSION_COLUMNS = [*CELL, *fusion.COLUMNS, *ADVISED]
FUSION_TABLE = Table(
    columns={
        **shared("model", "phase"),
        "verdict": Column(TEXT, "Verdict that chains of this pattern get together if they hold the step back enough."),
        "advice": Column(TEXT, "What to do about chains of this pattern."),
        **select(VERDICTS_TABLE.columns, "settings"),
        **select(fusion.CHAINS.columns, "chain", "pattern", "module", "type", "source"),
        **shared("direction"),
        **select(
            fusion.CHAINS.columns, "operators", "chains", "launches", "fused_launches", "bytes", "fused_bytes", "ns",
            "fused_ns", "fused_ns_low", "fused_ns_high", "gain"),
        "gain_low": Column(
            AMOUNT.or_missing, "Lower end of the 90 % interval of `gain`.", "ratio", interval=NINE_OF_TEN),
        "gain_high": Column(
            AMOUNT.or_missing, "Upper end of the 90 % interval of `gain`.", "ratio", interval=NINE_OF_TEN),
    },
    key=[*CELL, *fusion.CHAINS.key],
    holds=fusion.CHAINS.holds,
    ranges=fusion.CHAINS.ranges,
)  # fmt: skip


def add_advice(chains: pd.DataFrame, ran_with: KnownSettings, given: Rules) -> pd.DataFrame:
    """Return rows of a cell's fusion.csv with the verdict, the advice and the settings of the rule on their pattern."""
    rows: dict[str, tuple[str, str, str]] = {}
    for rule in given["rules"]:
        if rule["of"] == "chains":
            advice = verdict_rules.choose_advice(rule, {}, ran_with)
            own = (rule["verdict"], advice.next_step, advice.settings or "")
            rows |= dict.fromkeys(PATTERNS_OF_SHARE[rule["share"]], own)
    told = [rows.get(pattern, ("", "", "")) for pattern in chains["pattern"]]
    return chains.assign(**dict(zip(ADVISED, zip(*told, strict=True) if told else ([],) * 3, strict=True)))


def write_fusion_table(paths: Sequence[str], sidecars: Sequence[str], csv: str) -> None:
    """Read the cells' tables of chains, and the sidecars of the unprofiled runs for their settings; write the table."""
    ran_with, rules = read_cell_facts(sidecars).ran_with, verdict_rules.load_rules()
    frames = [
        add_advice(rows, ran_with.get((cell["model"], cell["phase"]), {}), rules).assign(**cell)
        for cell, rows in cell_tables.read(paths, fusion.CHAINS)
    ]
    write_csv(
        pd.concat(frames, ignore_index=True)[FUSION_COLUMNS] if frames else pd.DataFrame(columns=FUSION_COLUMNS), csv
    )


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
    failed: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Read the tables, write the verdicts (csv) and the lines that wait (waits).

    details: ncu's details pages, which may hold no advice; launches: exported launches of the same reports, in the same
    order; sidecars: of the unprofiled runs; layers: kernels by owner, and the trees of layers, in the same order;
    programs: of traced steps; on_cpus: the tables of cells and of ranges, and operators of each cell; chains: what
    could be fused, and the kernels of that, in the same order; activities: operators by torch.profiler; failed: as for
    `read_cell_facts`.
    """
    rates = read_peaks(peaks) if peaks else {}
    held = schemas.read_table("roofline", roofline) if roofline else None
    advice = {
        cell_key(page): (ncu_details.read_details(page), reading.read(rows, export_schema.TABLE))
        for page, rows in zip(details, launches, strict=True)
    }
    facts = read_cell_facts(sidecars, failed)
    kernel_table = schemas.read_table("kernels", kernels)
    trees = _read_pairs(layers, LAYER_KERNELS_TABLE, TABLE)
    rules = verdict_rules.load_rules()
    timed = noted_verdicts.add_cells(schemas.read_table("steps", steps), schemas.read_table("cells", on_cpus[0]))
    known = {cell_key(path): program.read_programs(path) for path in programs}
    write_csv(tabulate_waits(facts.lines, known), waits)
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
    own = {cell_key(path): reading.read(path, OPERATORS_TABLE) for path in operators if cell_key(path) in chosen}
    rules = verdict_rules.load_rules()
    return cpu_verdicts.tabulate_cpu_verdicts(timed, parts, own, facts.ran_with, rules, facts)
