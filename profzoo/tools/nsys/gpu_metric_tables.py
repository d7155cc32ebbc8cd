"""Makes the tables of GPU metrics that nsys sampled: a row per sample, and a row per step with mean and peak."""

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tools.nsys import dictionary, gpu_metric_checks, gpu_metrics, gpu_spans, step_spans
from profzoo.tools.nsys.export_columns import existing_columns
from profzoo.tools.nsys.gpu_metric_checks import Place
from profzoo.tools.nsys.gpu_metric_names import BY_NAME, PERCENT, QUANTITIES
from profzoo.tools.nsys.trace import open_export

AMOUNT = column_types.or_missing(column_types.AMOUNT)
COLUMNS = [quantity.column for quantity in QUANTITIES]
# Quantities of which a step has mean and peak, and those whose peak rate the export tells.
SUMMARISED = [quantity for quantity in QUANTITIES if quantity.unit == PERCENT]
MOVED = ("dram_read", "dram_write")


def _adds_up(table: pd.DataFrame) -> str | None:
    wrong = table["end_ns"] < table["start_ns"]
    return f"row {int(wrong.argmax()) + 1}: a sample ends before it starts" if wrong.any() else None


def _ordered(table: pd.DataFrame) -> str | None:
    for quantity in SUMMARISED:
        mean, peak = table[f"{quantity.name}_mean_pct"], table[f"{quantity.name}_peak_pct"]
        if (mean > peak + 1e-6).any():
            return f"row {int((mean > peak + 1e-6).argmax()) + 1}: the mean of {quantity.name} is above its peak"
    return None


SAMPLES = Table(
    columns={
        **dict.fromkeys(["gpu", "step"], column_types.COUNT),
        **dict.fromkeys(["start_ns", "end_ns"], column_types.WHOLE),
        **dict.fromkeys(COLUMNS, AMOUNT),
    },
    key=["gpu", "start_ns"],
    holds=_adds_up,
    about=dictionary.GPU_SAMPLES,
)
STEPS = Table(
    columns={
        **dict.fromkeys(["gpu", "step", "step_ns", "samples"], column_types.COUNT),
        **dict.fromkeys(["sampled_share", "kernel_share", "busy_share"], AMOUNT),
        **{f"{one.name}_{what}_pct": AMOUNT for one in SUMMARISED for what in ("mean", "peak")},
        **{f"{name}_bytes": AMOUNT for name in MOVED},
        **dict.fromkeys(["copied_from_bytes", "copied_to_bytes"], AMOUNT),
    },
    key=["gpu", "step"],
    holds=_ordered,
    about=dictionary.GPU_STEPS,
)


def tabulate_metrics(path: str | Path, whole_run: bool = False) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return the samples of the traced steps, their summary per step, and what is to be said about them.

    Both tables are without rows if nothing was sampled. Of several processes on one GPU, the first one's steps count,
    and the work of all. A process that used several GPUs has its steps on each.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is no export of nsys.
    """
    with open_export(path) as (database, tables):
        if why := gpu_metrics.explain_missing(database, tables):
            return SAMPLES.empty(), STEPS.empty(), [why]
        spans = step_spans.read_step_spans(database, tables, whole_run)
        if spans.empty:
            return SAMPLES.empty(), STEPS.empty(), ["the trace holds no step to which samples belong"]
        read = gpu_metrics.read_samples(database, tables, int(spans["start"].min()), int(spans["end"].max()))
        if isinstance(read, str):
            return SAMPLES.empty(), STEPS.empty(), [read]
        on_gpus, unused = _spans_by_gpu(database, tables, spans, read)
        peaks = _peak_rates(database, tables)
    origin = int(spans["start"].min())
    samples = pd.concat([_samples_of(read[read["gpu"] == gpu], mine, origin) for gpu, mine in on_gpus.items()])
    steps = pd.concat(
        [_summarise(read[read["gpu"] == gpu], mine, peaks.get(gpu)) for gpu, mine in on_gpus.items()],
        ignore_index=True,
    )
    notes = gpu_metric_checks.find_contradictions(steps, peaks)
    if unused:
        names = ", ".join(map(str, unused))
        notes.append(f"samples of GPU {names} are in no table, as the traced program did nothing there")
    return samples.reset_index(drop=True), steps, notes


def _spans_by_gpu(
    database: sqlite3.Connection, tables: set[str], spans: pd.DataFrame, samples: pd.DataFrame
) -> tuple[dict[int, pd.DataFrame], list[int]]:
    """Return the steps' spans by the GPU that ran them, with what the trace says of each span, and unused GPUs.

    Unused are the sampled GPUs on which no process with steps ran anything. Where the export does not tell which GPUs
    processes used, all sampled GPUs have the spans and the work of the first process.
    """
    work = gpu_spans.read_spans(database, tables)
    copies = gpu_metric_checks.read_copies(database, tables)
    found: dict[int, list[Place]] = {}
    for process in work["process"].unique().tolist():
        for device, gpu in gpu_metrics.gpus_of_process(database, tables, process).items():
            found.setdefault(gpu, []).append((process, device))
    sampled = sorted(samples["gpu"].unique().tolist())
    stepping = spans["process"].unique().tolist()
    own = {gpu: found[gpu] for gpu in sampled if any(process in stepping for process, _ in found.get(gpu, ()))}
    unused = [gpu for gpu in sampled if gpu not in own] if own else []
    if not own:
        pairs = work.loc[work["process"] == min(stepping), ["process", "gpu"]].drop_duplicates()
        own = {gpu: list(pairs.itertuples(index=False, name=None)) for gpu in sampled}
    told = {}
    for gpu, places in own.items():
        processes = [process for process, _ in places if process in stepping] or stepping
        mine = spans[spans["process"] == min(processes)]
        done = work[pd.MultiIndex.from_frame(work[["process", "gpu"]]).isin(places)]
        told[gpu] = mine.assign(
            **step_spans.shares_of_work(mine, done), **gpu_metric_checks.count_copied_bytes(mine, copies, places)
        )
    return told, unused


def _peak_rates(database: sqlite3.Connection, tables: set[str]) -> dict[int, float]:
    """Return the most bytes per second that each GPU's DRAM can move, by the GPU's number."""
    table, column = "TARGET_INFO_GPU", "memoryBandwidth"
    if table not in tables or not {"id", column} <= existing_columns(database, table):
        return {}
    return dict(database.execute(f"SELECT id, {column} FROM {table} WHERE {column} > 0").fetchall())


def _samples_of(samples: pd.DataFrame, spans: pd.DataFrame, origin: int) -> pd.DataFrame:
    """Return one row per sample of a GPU whose middle is in a step; times from `origin` (ns) on."""
    wide = samples.pivot_table(index=["gpu", "start"], columns="quantity", values="value").reset_index()
    # Where samples of one quantity were lost, the one before it may last longer than others.
    wide["end"] = wide["start"].map(samples.groupby("start")["end"].min())
    middle = (wide["start"] + wide["end"]) // 2
    place = np.searchsorted(spans["start"].to_numpy(), middle, side="right") - 1
    inside = (place >= 0) & (middle.to_numpy() < spans["end"].to_numpy()[np.maximum(place, 0)])
    wide = wide[inside].assign(step=spans["step"].to_numpy()[place[inside]])
    times = {"start_ns": wide["start"] - origin, "end_ns": wide["end"] - origin}
    named = wide.assign(**times).rename(columns={name: one.column for name, one in BY_NAME.items()})
    return named.rename_axis(columns=None).reindex(columns=[*SAMPLES.columns])


def _summarise(samples: pd.DataFrame, spans: pd.DataFrame, peak_rate: float | None) -> pd.DataFrame:
    """Return one row per step of a GPU; peak_rate: bytes per second of its DRAM, None if unknown."""
    series = {str(name): mine for name, mine in samples.groupby("quantity")}
    any_one = next(iter(series.values()))
    rows = []
    for span in spans.itertuples():
        length = span.end - span.start
        weights = _overlaps(any_one, span.start, span.end)
        row = {"gpu": int(any_one["gpu"].iloc[0]), "step": span.step, "step_ns": length}
        row |= {"samples": int((weights > 0).sum()), "sampled_share": weights.sum() / length}
        row |= {"kernel_share": span.kernel_share, "busy_share": span.busy_share}
        row |= {"copied_from_bytes": span.copied_from_bytes, "copied_to_bytes": span.copied_to_bytes}
        for quantity in SUMMARISED:
            mean, peak = _mean_and_peak(series.get(quantity.name), span.start, span.end)
            row |= {f"{quantity.name}_mean_pct": mean, f"{quantity.name}_peak_pct": peak}
            if quantity.name in MOVED:
                row[f"{quantity.name}_bytes"] = mean / 100 * (peak_rate or np.nan) * length / 1e9
        rows.append(row)
    return pd.DataFrame(rows)[[*STEPS.columns]]


def _overlaps(samples: pd.DataFrame, start: int, end: int) -> np.ndarray:
    """Return the ns of each sample that lie in a span."""
    first, last = samples["start"].clip(lower=start), samples["end"].clip(upper=end)
    return (last - first).clip(lower=0).to_numpy()


def _mean_and_peak(samples: pd.DataFrame | None, start: int, end: int) -> tuple[float, float]:
    """Return the mean over time and the largest value of the samples in a span; NaN without any."""
    weights = np.zeros(0) if samples is None else _overlaps(samples, start, end)
    if samples is None or not weights.sum():
        return np.nan, np.nan
    values = samples["value"].to_numpy()
    return float((values * weights).sum() / weights.sum()), float(values[weights > 0].max())
