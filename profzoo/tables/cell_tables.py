"""Makes tables across cells from exported CSV and sidecars; all numbers are per step, so that windows may differ."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from profzoo import tools
from profzoo.cell import rerun_commands
from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.common_columns import STEP_COUNTS
from profzoo.io.csv_tables import Row
from profzoo.statistics import process_repeats
from profzoo.tables import kernel_table
from profzoo.tables.schemas import CELL, COVERAGE, STEP_LEADING
from profzoo.tables.steps_per_export import count_profiled_steps
from profzoo.tables.tokens import describe_tokens
from profzoo.tools.nsys.steps.steps import CAUSES, FEEDING
from profzoo.tools.time.tables import REPEATED
from profzoo.tools.time.tables import TABLE as STEPS

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Computes shares of an unprofiled step: GPU work, waiting for other processes, and each cause of idle time.

# Kinds of GPU work, and causes of waiting, in the order of figures and pages.
WORK = ("kernels", "copy", "transfer", "communication")
IDLE = (*(f"idle_{cause}" for cause in CAUSES), "idle_unknown")
PARTS = (*WORK, "waiting", *IDLE)
UNOCCUPIED = ("waiting", *(f"idle_{cause}" for cause in CAUSES))
LAUNCHING = tuple(f"idle_{cause}" for cause in FEEDING)
# Shares are not known more exactly than this: if less of the step would be left, nobody knows how long it would take.
LEAST_LEFT = 1e-3


def step_shares(steps: pd.DataFrame) -> pd.DataFrame:
    """Return PARTS of each row of the table of steps; they add up to one.

    The GPU's busy share is its busy time under nsys over the unprofiled step. The kinds of work, and the causes of idle
    time, have the proportions that they have under nsys. `kernels` is time with a running kernel that does not
    communicate. In the other parts no such kernel runs: `transfer` has a copy between host and device, `copy` only
    other copies and memsets, `communication` only communication kernels, and `waiting` only communication kernels that
    wait for other processes. `idle_unknown` is idle time if the GPU was never idle under nsys.
    """
    exposed = (steps["communication_ns"] - steps["overlap_ns"] - steps["waiting_ns"]).clip(lower=0)
    copying = steps["copy_ns"] - steps["transfer_ns"]
    working = steps["busy_ns"] - steps["waiting_ns"]
    parts = {
        "kernels": working - exposed - steps["copy_ns"],
        "copy": copying,
        "transfer": steps["transfer_ns"],
        "communication": exposed,
    }
    scale = steps["busy_share"] / working.where(working > 0, 1)
    table = pd.DataFrame({name: ns * scale for name, ns in parts.items()})
    rest = 1 - table.sum(axis=1)
    unoccupied = steps["idle_ns"] + steps["waiting_ns"]
    known = rest / unoccupied.where(unoccupied > 0)
    for name in UNOCCUPIED:
        # Tables of earlier versions do not have all causes.
        table[name] = (steps.get(f"{name}_ns", 0.0) * known).fillna(0.0)
    table["idle_unknown"] = rest.where(known.isna(), 0.0)
    return table[list(PARTS)]


def name_part(part: str) -> str:
    """Return the name of one of PARTS as figures and pages show it."""
    return part.replace("idle_", "idle: ")


def launch_wait_share(shares: pd.DataFrame) -> pd.Series:
    """Return the share of the step in which the GPU waits for launches; fewer launches or a CUDA graph reduce it."""
    return shares[list(LAUNCHING)].sum(axis=1)


def least_share(step: Row, shares: Mapping[str, float], names: Sequence[str]) -> float:
    """Return a lower bound of the step's share in which the GPU is idle for these causes, at least 0.

    A profiler only lengthens idle time. In the unprofiled step, the other causes therefore take at most as long as
    under the profiler. The rest of the idle time belongs to these causes.

    Args:
        step: a row of the table of steps.
        shares: its PARTS.
        names: the causes; they are among PARTS, but not in WORK.

    The GPU is idle for half of a step of 3 ms. Under the profiler, the step takes 6 ms; its idle time is 4 ms for host
    and 0.3 ms for input. So the unprofiled step is idle for the host for at least 1.5 - 0.3 ms:

    >>> step = {"step_ns": 3.0, "waiting_ns": 0, "idle_host_ns": 4.0, "idle_input_ns": 0.3}
    >>> step |= {"idle_synchronisation_ns": 0, "idle_latency_ns": 0, "idle_launch_ns": 0}
    >>> round(least_share(step, {name: 0.0 for name in PARTS} | {"kernels": 0.5}, ["idle_host"]), 3)
    0.4
    """
    idle = 1 - sum(shares[name] for name in WORK)
    others = sum(step.get(f"{name}_ns", 0.0) for name in UNOCCUPIED if name not in names)
    return max(idle - others / step["step_ns"], 0.0)


def amdahl_gain(share: float, cured: float, workers: int = 0) -> float:
    """Return the speedup if a part of a share of the time is saved (Amdahl 1967); infinite if no time would be left.

    share: share of the time, 0 to 1. cured: saved part of this share, 0 to 1. workers: processes that do this part
    beside the rest, each a part of it; 0 if nobody needs to do it.

    >>> amdahl_gain(0.5, 1), amdahl_gain(1, 1), amdahl_gain(0.5, 1, workers=2), amdahl_gain(1, 1, workers=2)
    (2.0, inf, 2.0, 2.0)
    """
    saved = share * cured
    left = max(1 - saved, saved / workers if workers else 0.0)
    return 1 / left if left >= LEAST_LEFT else math.inf


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
    the cell again. Where any cell was made elsewhere, `imported` says what it is, `timed_under` which tool timed it,
    and `whole` whether its only step is all of it.

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
                **describe_tokens(steps, facts),
            }
        )
    table = pd.DataFrame(rows).astype({"peak_memory_bytes": "Int64", "items_per_s": "float64"})
    table = table.astype({name: "Int64" for name in KNOWN_BY_RUNNING if table[name].isna().any()})
    return table.assign(**_columns_of_imports([facts for _, _, facts in timed]))


def _columns_of_imports(cells: "Sequence[Sidecar]") -> dict[str, list[str] | list[bool]]:
    """Return the columns that say of each cell how it was made elsewhere; none where no cell was."""
    elsewhere = [facts.get("imported") or {} for facts in cells]
    if not any(elsewhere):
        return {}
    return {
        "imported": [imported_text(facts) for facts in cells],
        "timed_under": [about.get("timed_under", "") for about in elsewhere],
        "whole": [bool(about.get("whole")) for about in elsewhere],
    }


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


def activity(exported: "Iterable[tuple[str, Mapping[str, str], pd.DataFrame, Sidecar]]") -> pd.DataFrame:
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


def ranges(exported: "Iterable[tuple[str, Mapping[str, str], pd.DataFrame, Sidecar]]") -> pd.DataFrame:
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
    rows = [{**cell, "set": name, **kernel_table.summarise_coverage(table)} for cell, name, table in compared]
    return pd.DataFrame(rows, columns=[*CELL, "set", *COVERAGE])


def agreement(
    baseline: pd.DataFrame, activities: pd.DataFrame, walls: Iterable[tuple[str, Mapping[str, str], float]]
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


# Reads the unprofiled baseline: steps of one process or several, with their sidecars.

Timed = list[tuple[Mapping[str, str], pd.DataFrame, "Sidecar"]]
# Of sidecars.
OF_RUN: fact.Needs = {
    **dict.fromkeys(["device", "started"], fact.TEXT),
    # Of what was made elsewhere, these are not known.
    **dict.fromkeys(["parameters", "batch", "peak_rss_bytes", "items"], fact.or_null(fact.COUNT)),
    "cell": {"workload": fact.TEXT, "precision": fact.TEXT},
    "steps": fact.SEVERAL,
    "step_ns": fact.POSITIVE,
    "peak_memory_bytes": fact.or_null(fact.COUNT),
    "loss": fact.or_null(fact.NUMBER),
}


def read_baseline_steps(tables: Sequence[str], sidecars: Sequence[str]) -> Timed:
    """Return the baseline tables, each with its cell and sidecar.

    Raises:
        DataError: a table lacks steps.
    """
    found: Timed = []
    for path, sidecar in zip(tables, sidecars, strict=True):
        facts = read_facts(sidecar, OF_RUN)
        check_sidecars(sidecar, facts)
        steps = reading.read(path, REPEATED if "processes" in facts else STEPS)
        if len(steps) != facts["steps"]:
            raise DataError(f"{path} has {len(steps)} steps, but its sidecar says {facts['steps']}: {reading.AGAIN}")
        found.append((cell_of(path), steps, facts))
    return found
