"""Reads the GPU's metrics that nsys sampled over time (`nsys.gpu_metrics`) from an export (SQLite)."""

import sqlite3

import pandas as pd

from profzoo.tools.nsys.export_columns import existing_columns, has_option
from profzoo.tools.nsys.gpu_metric_names import HERTZ, find_quantity
from profzoo.tools.nsys.trace import read_integers

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


def explain_missing(database: sqlite3.Connection, tables: set[str]) -> str | None:
    """Return one line that says why an export has no samples that can be read, or None.

    >>> explain_missing(sqlite3.connect(":memory:"), {"StringIds"})
    'no GPU metrics were sampled: set nsys.gpu_metrics to true'
    """
    if SAMPLES not in tables:
        if "GENERIC_EVENTS" in tables and NAMES not in tables:
            return (
                "the export holds no table GPU_METRICS; if nsys.gpu_metrics is true, this nsys writes metrics among "
                "GENERIC_EVENTS, which is not read: install nsys 2024 or newer"
            )
        return NO_SAMPLE if has_option(database, OPTION) else NOT_COLLECTED
    for table, columns in NEEDED.items():
        lacking = [name for name in columns if name not in existing_columns(database, table)]
        if table not in tables or lacking:
            what = f"column {lacking[0]} in {table}" if table in tables else f"table {table}"
            return f"GPU metrics cannot be read, as the export has no {what}: use an nsys from 2024 to 2026"
    return None


def read_samples(database: sqlite3.Connection, tables: set[str], begin: int, end: int) -> pd.DataFrame | str:
    """Return the samples that meet a span of time; or one line that says why there are none.

    begin, end: times in ns on the clock of the export. Rows are ordered by GPU, quantity and time. Columns: `gpu`, its
    number on this machine; `quantity`, a name in gpu_metric_names; `start` and `end` in ns; and the mean `value`
    between them, in % or Hz. A sample lasts until the next one, or as long as usual where samples after it were lost.
    """
    if why := explain_missing(database, tables):
        return why
    known = _known_metrics(database)
    rows = _read_rows(database, sorted(set(known["metric"])), begin, end).merge(known, on=["kind", "metric"])
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


def _known_metrics(database: sqlite3.Connection) -> pd.DataFrame:
    """Return the metrics that tables hold: kind (typeId), metric, quantity, and whether it is a clock."""
    names = database.execute(f"SELECT DISTINCT typeId, metricId, metricName FROM {NAMES}").fetchall()
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


def gpus_of_process(database: sqlite3.Connection, tables: set[str], process: int) -> dict[int, int]:
    """Return the GPUs on which a process ran kernels, graphs or copies; empty if the export does not tell.

    process: number of the process in the export (`globalPid`). Returns the number of each GPU on this machine, by
    CUDA's number of the device in the process, in the order of the latter.
    """
    devices = "TARGET_INFO_CUDA_DEVICE"
    used: set[int] = set()
    for table in (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "GRAPH_TRACE", "MEMCPY")):
        if table in tables and {"deviceId", "globalPid"} <= existing_columns(database, table):
            rows = database.execute(f"SELECT DISTINCT deviceId FROM {table} WHERE globalPid = ?", (process,))
            used |= {device for (device,) in rows if device is not None}
    if devices not in tables:
        return {}
    known = database.execute(f"SELECT cudaId, gpuId FROM {devices} WHERE pid = ?", (process >> 24 & 0xFFFFFF,))
    return {device: int(gpu) for device, gpu in sorted(known) if device in used}


def samples_of_process(
    samples: pd.DataFrame, database: sqlite3.Connection, tables: set[str], process: int
) -> pd.DataFrame:
    """Return the samples of the GPUs that a process used; of the first GPU where the export does not tell."""
    gpus = sorted(samples["gpu"].unique())
    mine = [gpu for gpu in gpus_of_process(database, tables, process).values() if gpu in gpus]
    return samples[samples["gpu"].isin(mine or gpus[:1])]
