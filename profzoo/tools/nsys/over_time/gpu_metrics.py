"""Reads the GPU's metrics that nsys sampled over time (`nsys.gpu_metrics`) from an export (SQLite)."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, COUNT, CPU, GPU, WHOLE, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.export_columns import UNKNOWN, has_option
from profzoo.tools.nsys.events.host_events import COLLECTED_BY, SWITCHES, SYSTEM_CALLS
from profzoo.tools.nsys.events.host_events import SAMPLES as HOST_EVENTS_SAMPLES
from profzoo.tools.nsys.events.trace import COPY_TABLE, Source, Trace, open_trace, read_integers
from profzoo.tools.nsys.over_time import gpu_memory
from profzoo.tools.stream_overlap import COPY, MEMSET

# Maps the GPU metrics that nsys samples to columns; their names differ between generations of GPUs and nsys.
#
# Sources: the lists of metrics that nsys 2023.4 ships for Turing, GA100, GA10x, AD10x and GH100, and exports of GB20x
# by nsys 2025.3. A name ends with its unit in brackets, as in `SMs Active [Throughput %]`.

PERCENT, HERTZ = "%", "Hz"
# Units by their names in an export; clocks are in MHz or, under the same name, in Hz.
UNITS: Mapping[str, str] = {"Throughput %": PERCENT, "MHz": HERTZ}


@dataclass(frozen=True)
class Quantity:
    """A sampled quantity: what it is called in tables, in tracks and by nsys.

    name: column of tables without its unit. title: name of its track; empty for none. pattern: regular expression for
    the name by nsys without its unit; metrics that match are parts of the quantity and are added up. unit: PERCENT of
    the most that the hardware can do, or HERTZ. means: meaning, as the start of a sentence.
    """

    name: str
    title: str
    pattern: str
    means: str
    unit: str = PERCENT

    @property
    def column(self) -> str:
        """Name of the column with its unit."""
        return f"{self.name}_{'hz' if self.unit == HERTZ else 'pct'}"


QUANTITIES: Sequence[Quantity] = (
    Quantity("gr_active", "", r"GR Active", "Cycles in which the graphics and compute engine had work"),
    Quantity("sm_active", "SMs active", r"SMs? Active", "Cycles in which an SM had a warp, mean over all SMs"),
    Quantity("sm_issue", "", r"SM Issue", "Instructions issued, of the most that SMs can issue"),
    Quantity("tensor_active", "tensor cores", r"Tensor Active.*", "Cycles in which the tensor cores worked"),
    Quantity("warps", "", r"Compute Warps in Flight", "Warps of kernels in flight, of the most that SMs can hold"),
    Quantity("unused_warps", "", r"Unallocated Warps in Active SMs", "Free places for warps on SMs that had a warp"),
    Quantity("dram_read", "DRAM read", r"DRAM Read (Bandwidth|Throughput)", "Cycles in which DRAM was read"),
    Quantity("dram_write", "DRAM write", r"DRAM Write (Bandwidth|Throughput)", "Cycles in which DRAM was written"),
    Quantity("pcie_rx", "PCIe to GPU", r"PCIe RX Throughput", "PCIe traffic to the GPU, with protocol"),
    Quantity("pcie_tx", "PCIe from GPU", r"PCIe TX Throughput", "PCIe traffic from the GPU, with protocol"),
    Quantity("nvlink_rx", "NVLink to GPU", r"NVLink RX .*Data", "NVLink traffic to the GPU, with protocol"),
    Quantity("nvlink_tx", "NVLink from GPU", r"NVLink TX .*Data", "NVLink traffic from the GPU, with protocol"),
    Quantity("gpc_clock", "", r"GPC Clock Frequency", "Clock of the SMs", HERTZ),
    Quantity("sys_clock", "", r"SYS Clock Frequency", "Clock of the copy engines and the front end", HERTZ),
)
BY_NAME: Mapping[str, Quantity] = {quantity.name: quantity for quantity in QUANTITIES}


def find_quantity(metric: str) -> Quantity | None:
    """Return the quantity of a metric by its name in an export; None for metrics that no table holds.

    >>> metrics = "SM Active [Throughput %]", "GPC Clock Frequency [MHz]", "Compute Warps in Flight [Avg]"
    >>> [found and found.column for found in map(find_quantity, metrics)]
    ['sm_active_pct', 'gpc_clock_hz', None]
    """
    parts = re.fullmatch(r"(.*?)(?: \[(.*)\])?", metric)
    name, unit = (parts[1], parts[2]) if parts else (metric, None)
    # Exports of earlier versions name no unit.
    known = PERCENT if unit is None and "Clock" not in name else UNITS.get(unit or "MHz")
    return next((one for one in QUANTITIES if one.unit == known and re.fullmatch(one.pattern, name)), None)


SAMPLES, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
NEEDED = {SAMPLES: ("timestamp", "typeId", "metricId", "value"), NAMES: ("typeId", "metricId", "metricName")}
NOT_COLLECTED = "no GPU metrics were sampled: set nsys.gpu_metrics to true"
NO_SAMPLE = "nsys was to sample GPU metrics and left none: see its log, and whether this user may read counters"
NONE_IN_STEPS = (
    f"{SAMPLES} holds no sample of a known metric in the traced steps: raise nsys.window, and see what nsys says "
    "in its log"
)
# What an export names the options of the sampling.
OPTION = "%GPU_METRICS_OPTIONS%"
COLUMNS = ["gpu", "quantity", "start", "end", "value"]
# The bits of a typeId that hold the number of the GPU.
GPU_BITS = 0xFF
# Percentages beyond this, or below 0, are not values that the hardware counted.
MOST_PERCENT = 200
# Clocks below this are in MHz; nsys 2024 and 2025 write them in Hz under the unit MHz.
MOST_MEGAHERTZ = 100_000
# Values are read as whole parts of their unit, this many of one.
PARTS = 1000
# Samples farther apart than this many usual intervals have lost samples between them.
LOST = 2


def explain_missing(trace: Trace) -> str | None:
    """Return one line that says why an export has no samples that can be read, or None.

    >>> explain_missing(Trace(sqlite3.connect(":memory:"), {"StringIds"}))
    'no GPU metrics were sampled: set nsys.gpu_metrics to true'
    """
    if SAMPLES not in trace.tables:
        if "GENERIC_EVENTS" in trace.tables and NAMES not in trace.tables:
            return (
                "the export holds no table GPU_METRICS; if nsys.gpu_metrics is true, this nsys writes metrics among "
                "GENERIC_EVENTS, which is not read: install nsys 2024 or newer"
            )
        return NO_SAMPLE if has_option(trace.database, OPTION) else NOT_COLLECTED
    for table, columns in NEEDED.items():
        lacking = [name for name in columns if name not in trace.find_columns(table)]
        if table not in trace.tables or lacking:
            what = f"column {lacking[0]} in {table}" if table in trace.tables else f"table {table}"
            return f"GPU metrics cannot be read, as the export has no {what}: use an nsys from 2024 to 2026"
    return None


def read_samples(trace: Trace, begin: int, end: int) -> pd.DataFrame | str:
    """Return the samples that meet a span of time; or one line that says why there are none.

    begin, end: times in ns on the clock of the export. Rows are ordered by GPU, quantity and time. Columns: `gpu`, its
    number on this machine; `quantity`, a name in gpu_metric_names; `start` and `end` in ns; and the mean `value`
    between them, in % or Hz. A sample lasts until the next one, or as long as usual where samples after it were lost.
    """
    if why := explain_missing(trace):
        return why
    known = _known_metrics(trace)
    rows = _read_rows(trace.database, sorted(set(known["metric"])), begin, end).merge(known, on=["kind", "metric"])
    rows = rows.drop_duplicates(["kind", "metric", "start"])
    in_megahertz = rows["clock"] & (rows["value"] < MOST_MEGAHERTZ)
    rows["value"] = rows["value"].mask(in_megahertz, rows["value"] * 1e6)
    rows = rows[(rows["value"] >= 0) & (rows["clock"] | (rows["value"] <= MOST_PERCENT))]
    rows = rows.assign(gpu=rows["kind"] & GPU_BITS)
    # Metrics that are parts of one quantity have the same times.
    summed = rows.groupby(["gpu", "quantity", "start"], as_index=False)["value"].sum()
    timed = summed.assign(end=_ends(summed))
    timed = timed[(timed["start"] < end) & (timed["end"] > begin)][COLUMNS].reset_index(drop=True)
    return timed if len(timed) else NONE_IN_STEPS


def _known_metrics(trace: Trace) -> pd.DataFrame:
    """Return the metrics that tables hold: kind (typeId), metric, quantity, and whether it is a clock."""
    names = dict.fromkeys(trace.read_rows(NAMES, "typeId", "metricId", "metricName"))
    found = [
        (kind, number, quantity.name, quantity.unit == HERTZ)
        for kind, number, name in names
        if (quantity := find_quantity(str(name)))
    ]
    frame = pd.DataFrame(found, columns=["kind", "metric", "quantity", "clock"])
    return frame.astype({"kind": "int64", "metric": "int64", "quantity": "str", "clock": "bool"})


def _read_rows(database: sqlite3.Connection, metrics: list[int], begin: int, end: int) -> pd.DataFrame:
    """Return kind (typeId), metric, start in ns and value of the samples in a span and of some around it."""
    wanted = ", ".join(map(str, metrics)) or "NULL"
    # The sample that lasts into the span started before it.
    around = max((end - begin) // 10, 10_000_000)
    cursor = database.execute(
        f"SELECT typeId, metricId, timestamp, CAST(round(value * {PARTS}) AS INTEGER) FROM {SAMPLES} WHERE metricId IN "
        f"({wanted}) AND timestamp BETWEEN ? AND ? AND typeof(value) IN ('integer', 'real')",
        (begin - around, end + around),
    )
    names = ["kind", "metric", "start", "value"]
    rows = pd.DataFrame(read_integers(cursor).reshape(-1, len(names)), columns=names)
    return rows.assign(value=rows["value"] / PARTS)


def _ends(samples: pd.DataFrame) -> pd.Series:
    """Return the end of each sample in ns; samples: ordered by start within each GPU and quantity."""
    series = samples.groupby(["gpu", "quantity"])["start"]
    gap = series.shift(-1) - samples["start"]
    usual = gap.groupby([samples["gpu"], samples["quantity"]]).transform("median")
    lasts = gap.where(gap <= LOST * usual, usual).fillna(0)
    return samples["start"] + lasts.round().astype("int64")


def gpus_of_process(trace: Trace, process: int) -> dict[int, int]:
    """Return the GPUs on which a process ran kernels, graphs or copies; empty if the export does not tell.

    process: number of the process in the export (`globalPid`). Returns the number of each GPU on this machine, by
    CUDA's number of the device in the process, in the order of the latter.
    """
    work = pd.concat([trace.operations[trace.operations["kind"] != MEMSET], trace.graph_launches])
    used = set(work.loc[(work["process"] == process) & (work["gpu"] != UNKNOWN), "gpu"].tolist())
    known = trace.read_rows("TARGET_INFO_CUDA_DEVICE", "cudaId", "gpuId", "pid")
    mine = [row for row in known if row[2] == process >> 24 & 0xFFFFFF]
    return {device: int(gpu) for device, gpu, _ in sorted(mine) if device in used}


def samples_of_process(samples: pd.DataFrame, trace: Trace, process: int) -> pd.DataFrame:
    """Return the samples of the GPUs that a process used; of the first GPU where the export does not tell."""
    gpus = sorted(samples["gpu"].unique())
    mine = [gpu for gpu in gpus_of_process(trace, process).values() if gpu in gpus]
    return samples[samples["gpu"].isin(mine or gpus[:1])]


# Holds sampled GPU metrics against what the same trace says otherwise: times of kernels, and bytes of copies.

# CUPTI's kinds of copies that read and that write the GPU's memory: to the host, to the GPU, on it, between GPUs.
FROM_GPU, TO_GPU = (2, 8, 10), (1, 8, 10)
# In place of the number of a GPU: none.
NONE = -2
# A process, as in the export, and CUDA's number of a GPU in it.
Place: TypeAlias = tuple[int, int]
# Percentage points by which SMs may be active beyond the time with traced work: nsys keeps whole percent, and the
# driver runs short work of its own.
MORE_ACTIVE = 5
# Of known bytes, DRAM moves at least this part; but L2 may hold so many bytes in each step, and a share below so much
# of the most that DRAM can do is 0 in whole percent.
LEAST_PART, HELD_BY_L2, ROUNDED = 0.8, 128 << 20, 0.005
# Part of a step that samples should cover.
LEAST_SAMPLED = 0.9


def read_copies(trace: Trace) -> pd.DataFrame | None:
    """Return one row per traced copy, or None where no copies are traced, or not their bytes.

    Columns: `process`, `start` and `end` in ns, `bytes`, and `from_gpu` and `to_gpu`: CUDA's number of the device whose
    memory it read, and wrote; UNKNOWN where the export does not tell it, and NONE for memory of the host.
    """
    if COPY_TABLE not in trace.tables:
        return None
    copies = trace.operations[trace.operations["kind"] == COPY].reset_index(drop=True)
    if (copies["bytes"] == UNKNOWN).any():
        return None
    for side, kinds in (("from_gpu", FROM_GPU), ("to_gpu", TO_GPU)):
        # Exports tell both devices of copies between two GPUs, and of other copies one.
        told = copies[side].where(copies[side] != UNKNOWN, copies["gpu"])
        copies[side] = told.where(copies["copy_kind"].isin(kinds), NONE)
    return copies


def count_copied_bytes(
    spans: pd.DataFrame, copies: pd.DataFrame | None, places: Iterable[Place]
) -> Mapping[str, Sequence[float]]:
    """Return the bytes that traced copies read from and wrote to a GPU's memory during each step, by column.

    A copy that meets several steps counts in each by its time there. The bytes are missing without copies.

    spans: rows of read_step_spans. copies: from read_copies. places: processes with CUDA's numbers of the GPU in them.
    """
    columns = {"copied_from_bytes": "from_gpu", "copied_to_bytes": "to_gpu"}
    if copies is None:
        return {name: [np.nan] * len(spans) for name in columns}
    length = (copies["end"] - copies["start"]).clip(lower=1)
    found = {}
    for name, side in columns.items():
        mine = pd.MultiIndex.from_frame(copies[["process", side]]).isin(list(places))
        found[name] = [
            float((copies["bytes"] * _inside(copies, start, end) / length)[mine].sum())
            for start, end in spans[["start", "end"]].to_numpy(dtype=np.int64).tolist()
        ]
    return found


def _inside(copies: pd.DataFrame, start: int, end: int) -> pd.Series:
    """Return the ns of each copy that lie between two times."""
    return (copies["end"].clip(upper=end) - copies["start"].clip(lower=start)).clip(lower=0)


def find_contradictions(steps: pd.DataFrame, peak_rates: Mapping[int, float]) -> list[str]:
    """Return one line about each statement of the samples that the rest of the trace contradicts.

    steps: the table of gpu_metric_tables, one row per GPU and step. peak_rates: bytes per second of DRAM, by GPU.
    """
    found = []
    for gpu, mine in steps.groupby("gpu"):
        time = mine["step_ns"].sum()
        sampled_steps = mine[mine["sm_active_mean_pct"].notna()]
        active, busy = _mean(sampled_steps, "sm_active_mean_pct"), 100 * _mean(sampled_steps, "busy_share")
        if active > busy + MORE_ACTIVE:
            found.append(
                f"GPU {gpu}: SMs were active for {active:.0f} % of the steps, but the traced program used the GPU for "
                f"only {busy:.0f} %: another program used it, or its clock differs from the trace's"
            )
        if (covered := _mean(mine, "sampled_share")) < LEAST_SAMPLED:
            found.append(f"GPU {gpu}: samples cover {covered:.0%} of the steps ({time / 1e6:.1f} ms): nsys lost others")
        for moved, known in (("dram_read_bytes", "copied_from_bytes"), ("dram_write_bytes", "copied_to_bytes")):
            told = mine[mine[moved].notna() & mine[known].notna()]
            rounded = ROUNDED * peak_rates.get(int(str(gpu)), 0) * told["step_ns"].sum() / 1e9
            sampled, copied = told[moved].sum(), told[known].sum()
            if sampled < LEAST_PART * (copied - HELD_BY_L2 * len(told) - rounded):
                found.append(
                    f"GPU {gpu}: {moved} says {sampled:.4g} bytes, but traced copies alone moved {copied:.4g}: the "
                    "sampled bandwidth of DRAM is too low"
                )
    return found


def _mean(steps: pd.DataFrame, column: str) -> float:
    """Return the mean of a column over time; NaN without steps."""
    return float(np.average(steps[column], weights=steps["step_ns"])) if len(steps) else np.nan


# Makes the tables of GPU metrics that nsys sampled: a row per sample, and a row per step with mean and peak.
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


def _declare_sampled(quantity: Quantity) -> Column:
    unit = ", in % of the most possible" if quantity.unit == PERCENT else ""
    return Column(AMOUNT.or_missing, f"{quantity.means}{unit}.", quantity.unit, "nsys")


METRIC_SAMPLES = Table(
    columns={
        "gpu": Column(COUNT, "Number of the GPU on this machine.", tool="nsys"),
        "step": Column(COUNT, "Step of the window, counted from 0, in which the middle of the sample is.", tool="nsys"),
        "start_ns": Column(
            WHOLE, "Start of the sample, from the start of the first traced step on.", "ns", "nsys", GPU),
        "end_ns": Column(WHOLE, "End of the sample, from the start of the first traced step on.", "ns", "nsys", GPU),
        **{one.column: _declare_sampled(one) for one in QUANTITIES},
    },
    key=["gpu", "start_ns"],
    holds=_adds_up,
)  # fmt: skip
STEPS = Table(
    columns={
        **select(METRIC_SAMPLES.columns, "gpu"),
        "step": Column(COUNT, "Step of the window, counted from 0.", tool="nsys"),
        "step_ns": Column(
            COUNT, "Time from the start of the step to the start of the next one, or until the GPU was done.",
            "ns", "nsys", CPU),
        "samples": Column(COUNT, "Samples that meet the step.", "count", "nsys"),
        "sampled_share": Column(AMOUNT.or_missing, "Part of the step that samples cover.", "fraction", "nsys", GPU),
        "kernel_share": Column(
            AMOUNT.or_missing, "Part of the step in which a traced kernel ran; no sampled value.",
            "fraction", "nsys", GPU),
        "busy_share": Column(
            AMOUNT.or_missing, "Part of the step with a traced kernel, copy or fill; no sampled value.",
            "fraction", "nsys", GPU),
        **{
            f"{one.name}_{what}_pct": Column(AMOUNT.or_missing, f"{words} `{one.column}`.", PERCENT, "nsys")
            for one in SUMMARISED
            for what, words in (("mean", "Mean over the step of"), ("peak", "Largest sample in the step of"))
        },
        "dram_read_bytes": Column(
            AMOUNT.or_missing, "Bytes that DRAM delivered in the step, from its mean and its peak rate.",
            "byte", "nsys"),
        "dram_write_bytes": Column(
            AMOUNT.or_missing, "Bytes that DRAM took in the step, from its mean and its peak rate.", "byte", "nsys"),
        "copied_from_bytes": Column(
            AMOUNT.or_missing, "Bytes that traced copies read from the GPU's memory in the step.", "byte", "nsys"),
        "copied_to_bytes": Column(
            AMOUNT.or_missing, "Bytes that traced copies wrote to the GPU's memory in the step.", "byte", "nsys"),
    },
    key=["gpu", "step"],
    holds=_ordered,
)  # fmt: skip


def tabulate_metrics(source: Source, whole_run: bool = False) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return the samples of the traced steps, their summary per step, and what is to be said about them.

    Both tables are without rows if nothing was sampled. Of several processes on one GPU, the first one's steps count,
    and the work of all. A process that used several GPUs has its steps on each.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        if why := explain_missing(trace):
            return METRIC_SAMPLES.empty(), STEPS.empty(), [why]
        spans = gpu_memory.read_step_spans(trace, whole_run)
        if spans.empty:
            return METRIC_SAMPLES.empty(), STEPS.empty(), ["the trace holds no step to which samples belong"]
        read = read_samples(trace, int(spans["start"].min()), int(spans["end"].max()))
        if isinstance(read, str):
            return METRIC_SAMPLES.empty(), STEPS.empty(), [read]
        on_gpus, unused = _spans_by_gpu(trace, spans, read)
        peaks = _peak_rates(trace)
    origin = int(spans["start"].min())
    samples = pd.concat([_samples_of(read[read["gpu"] == gpu], mine, origin) for gpu, mine in on_gpus.items()])
    steps = pd.concat(
        [_summarise(read[read["gpu"] == gpu], mine, peaks.get(gpu)) for gpu, mine in on_gpus.items()], ignore_index=True
    )
    notes = find_contradictions(steps, peaks)
    if unused:
        names = ", ".join(map(str, unused))
        notes.append(f"samples of GPU {names} are in no table, as the traced program did nothing there")
    return samples.reset_index(drop=True), steps, notes


def _spans_by_gpu(
    trace: Trace, spans: pd.DataFrame, samples: pd.DataFrame
) -> tuple[dict[int, pd.DataFrame], list[int]]:
    """Return the steps' spans by the GPU that ran them, with what the trace says of each span, and unused GPUs.

    Unused are the sampled GPUs on which no process with steps ran anything. Where the export does not tell which GPUs
    processes used, all sampled GPUs have the spans and the work of the first process.
    """
    trace.check_streams()
    work, copies = trace.operations, read_copies(trace)
    found: dict[int, list[Place]] = {}
    for process in work["process"].unique().tolist():
        for device, gpu in gpus_of_process(trace, process).items():
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
        told[gpu] = mine.assign(**gpu_memory.shares_of_work(mine, done), **count_copied_bytes(mine, copies, places))
    return told, unused


def _peak_rates(trace: Trace) -> dict[int, float]:
    """Return the most bytes per second that each GPU's DRAM can move, by the GPU's number."""
    return {gpu: rate for gpu, rate in trace.read_rows("TARGET_INFO_GPU", "id", "memoryBandwidth") if rate and rate > 0}


def _samples_of(samples: pd.DataFrame, spans: pd.DataFrame, origin: int) -> pd.DataFrame:
    """Return one row per sample of a GPU whose middle is in a step; times from `origin` (ns) on."""
    wide = samples.pivot_table(index=["gpu", "start"], columns="quantity", values="value").reset_index()
    # Where samples of one quantity were lost, the one before it may last longer than others.
    wide["end"] = wide["start"].map(samples.groupby("start")["end"].min())
    middle = ((wide["start"] + wide["end"]) // 2).to_numpy()
    place = intervals.find_open(middle, spans["start"].to_numpy(), spans["end"].to_numpy())
    wide = wide[place >= 0].assign(step=spans["step"].to_numpy()[place[place >= 0]])
    times = {"start_ns": wide["start"] - origin, "end_ns": wide["end"] - origin}
    named = wide.assign(**times).rename(columns={name: one.column for name, one in BY_NAME.items()})
    return named.rename_axis(columns=None).reindex(columns=[*METRIC_SAMPLES.columns])


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


# Says whether nsys was asked for events, and why a trace lacks those of the host.

# Options of nsys that ask for what a table holds, as in the command of a sidecar, and values that ask for nothing.
ASKED_BY: Mapping[str, tuple[str, ...]] = {
    HOST_EVENTS_SAMPLES: ("--sample=",),
    SWITCHES: ("--cpuctxsw=",),
    SYSTEM_CALLS: ("--trace=",),
    SAMPLES: ("--gpu-metrics-devices=", "--gpu-metrics-device="),
    gpu_memory.EVENTS: ("--cuda-memory-usage=",),
}
ASKS_NOTHING = ("none", "false")
# Work on a GPU has no table of its own here; this advice ends the reason why there is none.
TRACE_CUDA = ": trace cuda (nsys.traces)"
RECORDED_NONE = "nsys was asked for them and recorded none"
# nsys needs permission to record these, and `snakemake doctor` checks it.
NEEDS_PERMISSION = (HOST_EVENTS_SAMPLES, SWITCHES)


def explain_missing_events(why: str, command: object) -> str:
    """Return the reason why events are missing, without the advice to ask for them if nsys was asked.

    Args:
        why: reason as in HostEvents.lacking, or another line, which is returned as it is.
        command: command line of nsys, as in a sidecar.

    >>> line = "the trace holds no context switches: set nsys.cpuctxsw to process-tree"
    >>> explain_missing_events(line, ["nsys", "profile", "--cpuctxsw=none"]) == line
    True
    >>> explain_missing_events(line, ["nsys", "profile", "--cpuctxsw=process-tree"]).partition("; ")[0]
    'the trace holds no context switches: nsys was asked for them and recorded none'
    """
    if why.endswith(TRACE_CUDA) and _traces(command, "cuda"):
        return why.removesuffix(TRACE_CUDA)
    for table, advice in COLLECTED_BY.items():
        if why.endswith(advice) and was_asked_for(table, command):
            permission = "; `snakemake doctor` says whether this machine allows it" if table in NEEDS_PERMISSION else ""
            return f"{why.removesuffix(advice)}{RECORDED_NONE}{permission}"
    return why


def was_asked_for(table: str, command: object) -> bool:
    """Whether the command of nsys asked for what a table of the export holds.

    >>> was_asked_for("SCHED_EVENTS", ["nsys", "profile", "--cpuctxsw=process-tree"])
    True
    >>> was_asked_for("SCHED_EVENTS", ["nsys", "profile", "--cpuctxsw=none"]), was_asked_for("SCHED_EVENTS", [])
    (False, False)
    >>> was_asked_for("OSRT_API", ["nsys", "profile", "--trace=cuda,nvtx"])
    False
    >>> was_asked_for("GPU_METRICS", ["nsys", "profile", "--gpu-metrics-device=all"])
    True
    """
    if table == SYSTEM_CALLS:
        return _traces(command, "osrt")
    return any(value not in ASKS_NOTHING for value in _values(command, ASKED_BY[table]))


def _traces(command: object, kind: str) -> bool:
    return any(kind in value.split(",") for value in _values(command, ASKED_BY[SYSTEM_CALLS]))


def _values(command: object, options: Sequence[str]) -> list[str]:
    """Return the values of options in a command line; options: with their equals signs."""
    words = [str(word) for word in command] if isinstance(command, list) else []
    return [word.removeprefix(option) for option in options for word in words if word.startswith(option)]


# Exports what nsys collected of the GPU over time: sampled metrics, their means per step, and memory in use.
def export_over_time(
    sqlite: str, report_sidecar: str, metrics: str, steps: str, memory: str, say: Callable[[str], object] = print
) -> None:
    """Read the export and its report's sidecar; write the tables, which have no row of what was not collected."""
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    whole_run = facts["capture"] == "run"
    with open_trace(sqlite) as trace:
        samples, summary, of_metrics = tabulate_metrics(trace, whole_run)
        events, of_memory = gpu_memory.tabulate_memory(trace, whole_run)
    if facts.get("device_type") == "cpu":
        say(f"{metrics} and {memory} have no row, as the cell ran on a CPU")
        of_metrics, of_memory = [], []
    asked = [was_asked_for(table, facts.get("command")) for table in (SAMPLES, gpu_memory.EVENTS)]
    for path, lines, own in zip((metrics, memory), (of_metrics, of_memory), asked, strict=True):
        # One rule makes all tables: of a kind that nobody asked for, beside one that was asked for, only the log tells.
        tell = print if any(asked) and not own else say
        for line in lines:
            tell(f"{path}: {line}")
    write_csv(samples, metrics)
    write_csv(summary, steps)
    write_csv(events, memory)
