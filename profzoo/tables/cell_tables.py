"""Makes tables across cells from exported CSV and sidecars; all numbers are per step, so that windows may differ."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from profzoo import tools
from profzoo.cell import rerun_commands
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.common_columns import STEP_COUNTS
from profzoo.statistics import process_repeats
from profzoo.tables import kernel_table, ncu_coverage
from profzoo.tables.schemas import CELL, COVERAGE, STEP_LEADING
from profzoo.tables.steps_per_export import count_profiled_steps

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

# Between what there is to say of a cell that was made elsewhere.
LINE_SEPARATOR = " | "
# Of a cell that was made elsewhere these are not known.
KNOWN_BY_RUNNING = ("parameters", "batch", "peak_rss_bytes")
FILES = ("../tools/*/activity.py",)
EXTENDED = ("tools/*/activity.py",)


def cell_of(path: str | Path) -> dict[str, str]:
    """Return the model (with variant) and phase that a file under results/ belongs to.

    >>> cell_of("results/lstm@bf16/train.ncu.launch.csv")
    {'model': 'lstm@bf16', 'phase': 'train'}
    """
    path = Path(path)
    return {"model": path.parent.name, "phase": path.name.partition(".")[0]}


def cell_key(path: str | Path) -> tuple[str, str]:
    """Return the model (with variant) and phase that a file under results/ belongs to, as a key.

    >>> cell_key("results/lstm@bf16/train.ncu.launch.csv")
    ('lstm@bf16', 'train')
    """
    cell = cell_of(path)
    return cell["model"], cell["phase"]


def _precision(facts: "Sidecar") -> str:
    """Return the arithmetic of a cell: a script's own as it was seen, where no setting chose it."""
    observed = facts.get("script", {}).get("observed", {})
    asked: str = facts["cell"]["precision"]
    return observed.get("precision", asked) if asked == "fp32" else asked


def check_sidecars(sidecar: str | Path, facts: "Sidecar") -> None:
    """Raise DataError if a sidecar belongs to another cell than its path says."""
    place, told = cell_of(sidecar), facts.get("cell")
    if not isinstance(told, Mapping) or not {"model", "phase"} <= set(told):
        return
    model, phase = told["model"], told["phase"]
    if (model, phase) != (place["model"].partition("@")[0], place["phase"]):
        raise DataError(
            f"{sidecar} belongs to {model} {phase}, but is in the place of {place['model']} {place['phase']}: put it "
            f"where it belongs, and measure this cell again (`snakemake --force {Path(sidecar).with_suffix('')}`)"
        )


def read(paths: Sequence[str], table: reading.Table) -> list[tuple[Mapping[str, str], pd.DataFrame]]:
    """Read tables of cells, each with its cell; table: their declaration."""
    return [(cell_of(path), reading.read(path, table)) for path in paths]


def cells(timed: "Sequence[tuple[Mapping[str, str], pd.DataFrame, Sidecar]]") -> pd.DataFrame:
    """Return one row per cell from the baseline: what ran, time per step, throughput, peak memory.

    `step_ns` is the mean of the steps in steady state over all processes; `step_low_ns` and `step_high_ns` are the ends
    of its 95 % confidence interval. `step_median_ns` is the median, with the quartiles `step_lower_quartile_ns` and
    `step_upper_quartile_ns`. All are on the GPU's clock (on a CPU, the host's). `items_per_s` follows from the mean.
    `cpu_taken_share` is the share of the time in which other programs used the CPU, in the most disturbed process.
    `unsteady` says why times are not to be relied on. `arguments` are the arguments of `python -m models.run` that run
    the cell again. `imported`, where any cell was made elsewhere, says what it is.

    timed: for each cell, the cell, rows of its time.csv, and its sidecar.
    """
    rows = []
    for cell, steps, facts in timed:
        found = process_repeats.summarise_processes(
            process_repeats.processes(steps), process_repeats.cpu_taken_shares(facts)
        )
        rows.append(
            {
                **cell,
                "device": facts["device"],
                "date": facts["started"][:10],
                "workload": facts["cell"]["workload"],
                "precision": _precision(facts),
                "parameters": facts["parameters"],
                "batch": facts["batch"],
                "steps": facts["steps"],
                "step_ns": found.mean_ns,
                "step_low_ns": found.mean_low_ns,
                "step_high_ns": found.mean_high_ns,
                "step_median_ns": found.median_ns,
                "step_lower_quartile_ns": found.lower_quartile_ns,
                "step_upper_quartile_ns": found.upper_quartile_ns,
                "processes": found.processes,
                "between_share": found.between_share,
                "cpu_taken_share": found.taken_share,
                "unsteady": found.unsteady or "",
                "items_per_s": _rate(facts, found.mean_ns),
                "peak_memory_bytes": facts["peak_memory_bytes"],
                "peak_rss_bytes": facts["peak_rss_bytes"],
                "loss": facts["loss"],
                "arguments": _arguments(cell["model"], facts),
            }
        )
    table = pd.DataFrame(rows).astype({"peak_memory_bytes": "Int64", "items_per_s": "float64"})
    table = table.astype({name: "Int64" for name in KNOWN_BY_RUNNING if table[name].isna().any()})
    told = [imported_text(facts) for _, _, facts in timed]
    return table.assign(imported=told) if any(told) else table


def _arguments(model: str, facts: "Sidecar") -> str:
    """Arguments that run the cell again; empty where its sidecar does not hold all of them."""
    known = rerun_commands.can_be_typed(facts["cell"])
    return rerun_commands.run_arguments(model, facts["cell"]) if known else ""


def _rate(facts: "Sidecar", step_ns: float) -> float | None:
    """Samples per second at this time per step; None where the samples of a step are not known."""
    return None if facts["items"] is None else facts["items"] / facts["steps"] / step_ns * 1e9


def imported_text(facts: "Sidecar") -> str:
    """Say what a cell that was made elsewhere goes by: steps, files, and what is missing; empty for other cells."""
    if not (about := facts.get("imported")):
        return ""
    files = [f"{one['file']} ({one['form']}, sha256 {one['sha256'][:12]})" for one in about["files"]]
    return LINE_SEPARATOR.join([f"steps: {about['steps_from']}", *files, *about["coverage"]])


def add_tool_columns(
    baseline: pd.DataFrame, exported: "Iterable[tuple[str, Mapping[str, str], pd.DataFrame, Sidecar]]"
) -> pd.DataFrame:
    """Add the columns of tools to the table of cells; exported: tool, cell, rows of the tool's CSV, and sidecar."""
    found: dict[tuple[str, ...], dict[str, float | str]] = {}
    for tool, cell, table, facts in exported:
        if columns := tools.activities()[tool].summarise_cell(table, facts):
            found.setdefault(tuple(cell[key] for key in CELL), {}).update(columns)
    if not found:
        return baseline
    rows = [{**dict(zip(CELL, cell, strict=True)), **columns} for cell, columns in found.items()]
    return baseline.merge(pd.DataFrame(rows), on=CELL, how="left")


def activity(
    exported: "Iterable[tuple[str, Mapping[str, str], pd.DataFrame, Sidecar]]",
) -> pd.DataFrame:
    """Return one row per cell, tool, range and kernel (on a CPU: operator), per step, longest first.

    `share` is relative to the time that the tool saw in the cell. Operators of torch count with their own time, without
    nested operators.

    exported: for each tool and cell: tool, cell, rows of the tool's CSV, and sidecar.
    """
    frames = []
    for tool, cell, table, facts in exported:
        rows = tools.activities()[tool].summarise_kernels(table, facts)
        if rows is None:
            continue
        grouped = rows.groupby(["kind", "name", "range"], dropna=False)[["count", "ns"]].sum().reset_index()
        grouped = grouped.rename(columns={"count": "launches_per_step", "ns": "ns_per_step"})
        grouped["share"] = grouped["ns_per_step"] / max(grouped["ns_per_step"].sum(), 1)
        grouped[["launches_per_step", "ns_per_step"]] /= count_profiled_steps(facts)
        frames.append(grouped.assign(**cell, tool=tool).sort_values("ns_per_step", ascending=False))
    columns = [*CELL, "tool", "kind", "range", "name", "launches_per_step", "ns_per_step", "share"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def ranges(
    exported: "Iterable[tuple[str, Mapping[str, str], pd.DataFrame, Sidecar]]",
) -> pd.DataFrame:
    """Return one row per cell, tool and range, per step: GPU time of the kernels launched in it, or CPU time.

    `clock` says which: gpu, or cpu for a cell that ran on a CPU. Launches outside of all parts have an empty range. On
    a CPU, time outside of all parts has the range `other`, so that the ranges of a cell add up to its step.
    """
    rows = []
    for tool, cell, table, facts in exported:
        found = tools.activities()[tool].summarise_ranges(table, facts)
        if found is None:
            continue
        (clock, sums), steps = found, count_profiled_steps(facts)
        for name, (ns, launches) in sums.items():
            per_step = None if launches is None else launches / steps
            rows.append({**cell, "tool": tool, "clock": clock, "range": name, "ns_per_step": ns / steps,
                         "launches_per_step": per_step})  # fmt: skip
    return pd.DataFrame(rows, columns=[*CELL, "tool", "clock", "range", "ns_per_step", "launches_per_step"])


def kernels(joined: Iterable[tuple[Mapping[str, str], pd.DataFrame]]) -> pd.DataFrame:
    """Concatenate the kernel tables of all cells, which tables/kernel_table makes."""
    frames = [table.assign(**cell) for cell, table in joined]
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=kernel_table.COLUMNS)
    counts = [name for name in STEP_COUNTS if name in table]
    return table.reindex(columns=[*CELL, *kernel_table.COLUMNS, *counts])


def steps(
    baseline: pd.DataFrame, traced: Iterable[tuple[Mapping[str, str], pd.DataFrame]], ranks: pd.DataFrame
) -> pd.DataFrame:
    """Return one row per cell and process that nsys traced: where the time of a step goes.

    Cells without any work on a GPU are left out: all of their step would be idle time of a GPU that they do not use.
    `waiting_ns` is the part of `busy_ns` and `communication_ns` in which only communication kernels run and wait for
    other processes. `busy_share` is the GPU's other busy time over the unprofiled step; `nsys_busy_share` is the same
    time over the step under nsys, which takes longer. Mean and median step, and the share of the time in which other
    programs used the CPU, come from the baseline.

    Args:
        baseline: the table of cells.
        traced: for each cell, the cell and rows of its nsys-steps.csv; of several processes, those of the first.
        ranks: the table of the processes of cells on several GPUs.
    """
    unprofiled = ["step_ns", "step_median_ns", "cpu_taken_share"]
    frames = [rows.assign(**cell) for cell, rows in traced if (rows["busy_ns"] > 0).any()]
    if not frames:
        return pd.DataFrame(columns=STEP_LEADING)
    table = pd.concat(frames, ignore_index=True).merge(
        baseline.reindex(columns=[*CELL, *unprofiled]), on=CELL, how="left"
    )
    first = table[CELL].merge(ranks[ranks["rank"] == 0], on=CELL, how="left")
    exposed = table["communication_ns"] - table["overlap_ns"]
    table["waiting_ns"] = first["waiting_ns"].astype(float).fillna(0.0).clip(upper=exposed)
    working = table["busy_ns"] - table["waiting_ns"]
    table["busy_share"] = (working / table["step_ns"]).clip(upper=1)
    table["nsys_busy_share"] = working / table["wall_ns"]
    return table[[*STEP_LEADING, *(name for name in table.columns if name not in STEP_LEADING)]]


def coverages(compared: Iterable[tuple[Mapping[str, str], str, pd.DataFrame]]) -> pd.DataFrame:
    """Return one row per cell and section set: how much of nsys' launches ncu profiled.

    compared: cell, name of the section set, rows of its coverage.csv.
    """
    rows = [{**cell, "set": name, **ncu_coverage.summary(table)} for cell, name, table in compared]
    return pd.DataFrame(rows, columns=[*CELL, "set", *COVERAGE])


def agreement(
    baseline: pd.DataFrame,
    activities: pd.DataFrame,
    walls: Iterable[tuple[str, Mapping[str, str], float]],
) -> pd.DataFrame:
    """Return one row per cell: launches and GPU time per step by tool, and each tool's slowdown.

    `launches_spread` and `gpu_ns_spread` are (largest - smallest) / largest over the tools that saw the cell.

    Args:
        baseline: the table of cells.
        activities: the table of activity.
        walls: tool, cell, and wall time in ns per step under the tool, for tools that do not run launches alone.
    """
    table = baseline[[*CELL, "step_ns"]].copy()
    seen = activities[activities["kind"] == "kernel"]
    sums = seen.groupby([*CELL, "tool"])[["launches_per_step", "ns_per_step"]].sum().unstack("tool")
    index = pd.MultiIndex.from_frame(table[CELL])
    for measure, field in (("launches", "launches_per_step"), ("gpu_ns", "ns_per_step")):
        columns = []
        for tool in tools.compared_activities():
            if (field, tool) in sums:
                table[f"{tool}_{measure}"] = sums[field, tool].reindex(index).to_numpy()
                columns.append(f"{tool}_{measure}")
        values = table[columns]
        largest = values.max(axis=1)
        several = values.notna().sum(axis=1) > 1
        table[f"{measure}_spread"] = ((largest - values.min(axis=1)) / largest).where(several)
    for tool in tools.activities():
        found = {(cell["model"], cell["phase"]): wall for name, cell, wall in walls if name == tool}
        if found:
            wall = pd.Series([found.get(key) for key in index], index=table.index, dtype="float64")
            table[f"{tool}_slowdown"] = wall / table["step_ns"]
    return table
