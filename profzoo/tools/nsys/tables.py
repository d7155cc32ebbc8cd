"""Makes the table of an nsys export: one row per launch configuration and range."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, COUNT, GPU, TEXT, Column
from profzoo.io.common_columns import STEP_COUNTS, shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv, write_json
from profzoo.range_names import LAUNCHING
from profzoo.tools.nsys.events import export_columns
from profzoo.tools.nsys.events import launches as nsys_launches
from profzoo.tools.nsys.events import trace as nsys_trace
from profzoo.tools.nsys.events.launches import CONFIGURATION, PACKS, count_steps
from profzoo.tools.nsys.events.trace import Source, open_trace, read_ranges, read_window_steps
from profzoo.tools.nsys.steps import steps as nsys_steps

NAMES = ["kernel", "mangled", "function", "range"]
# The range of launches outside the steps of the window, in the trace of a whole run.
OUTSIDE = "outside"
GRAPH = "CUDA graph"
# Error of sums of shares that rounding may cause.
ROUNDING = 1e-6


def _whole(table: pd.DataFrame) -> str | None:
    """Explain why a table is damaged (rows missing, or numbers changed), or return None."""
    shares, total = table["share"].dropna(), table.loc[table["share"].notna(), "total_ns"]
    if len(shares) and (abs(shares.sum() - 1) > ROUNDING or (shares - total / total.sum()).abs().gt(ROUNDING).any()):
        return f"shares of GPU time, which add up to {shares.sum():.6f}, are not those of total_ns: rows are missing"
    return None


TABLE = Table(
    columns={
        **shared("kernel", "mangled", "function"),
        "range": Column(
            TEXT, "Part of the step (NVTX range) that was open when the kernel was launched; `outside` for launches "
            "outside the steps of the window in a trace of the whole run.", tool="nsys"),
        **shared("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
        **shared("smem_static_bytes", "smem_dynamic_bytes", kind=COUNT),
        **shared("registers"),
        "launches": Column(COUNT, "Launches in the window.", "count", "nsys"),
        "total_ns": Column(COUNT, "GPU time of these launches together.", "ns", "nsys", GPU),
        "mean_ns": Column(AMOUNT, "Mean GPU time of a launch.", "ns", "nsys", GPU),
        "median_ns": Column(AMOUNT.or_missing, "Median GPU time of a launch.", "ns", "nsys", GPU),
        "min_ns": Column(AMOUNT, "Shortest GPU time of a launch.", "ns", "nsys", GPU),
        "max_ns": Column(AMOUNT, "Longest GPU time of a launch.", "ns", "nsys", GPU),
        "std_ns": Column(
            AMOUNT.or_missing, "Standard deviation of the GPU time of a launch (of the population).",
            "ns", "nsys", GPU),
        "share": Column(
            AMOUNT.or_missing, "Part of the GPU time of all launches in the steps of the window.",
            "fraction", "nsys", GPU),
    },
    optional=shared(*STEP_COUNTS),
    key=["kernel", "mangled", "range", *CONFIGURATION],
    holds=_whole,
    ranges=dict.fromkeys(["mean_ns", "median_ns"], ("min_ns", "max_ns")),
)  # fmt: skip
COLUMNS = [*TABLE.columns]


def summarise(source: Source, whole_run: bool = False) -> pd.DataFrame:
    """Return one row per launch configuration and range of an export, the largest total first; no row without launches.

    A launch belongs to the range that was open on any thread when it was launched, because autograd launches the
    backward pass from another thread. Times are GPU durations in ns; `std_ns` is their population standard deviation.
    `share` is relative to the GPU time of all launches.

    A CUDA graph that was traced as a whole counts as one launch. It is named by its number, and its grid and block are
    0. Its time is from its first kernel's start to its last kernel's end.

    Args:
        source: nsys export (SQLite).
        whole_run: the trace holds more than the window. Launches outside the steps of read_window_steps then have the
            range OUTSIDE and no share, unless the trace holds none of these steps.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        launches = trace.launches
        if launches.empty:
            return pd.DataFrame(columns=COLUMNS)
        codes = nsys_launches.find_ranges(launches, read_ranges(trace, LAUNCHING))
        steps = read_window_steps(trace, whole_run)
        if whole_run and len(steps):
            codes[nsys_launches.is_outside_steps(launches, steps)] = len(LAUNCHING) + 1
        kernels = trace.kernel_names
    launches = launches.assign(range=codes)
    table = _grouped(launches)
    if (found := count_steps(launches, steps, [*PACKS, "graph", "range"])) is not None:
        table = table.join(found.astype("Int64"), on=list(found.index.names))
    table["range"] = np.array(["", *LAUNCHING, OUTSIDE])[table["range"]]
    inside = table["total_ns"].where(table["range"] != OUTSIDE)
    table["share"] = inside / inside.sum()
    table = table.assign(**nsys_launches.unpack_configurations(table))
    named = [
        kernels[mangled] if graph < 0 else (f"{GRAPH} {graph}", f"{GRAPH} {graph}", GRAPH)
        for mangled, graph in zip(table["mangled"], table["graph"], strict=True)
    ]
    table["mangled"], table["kernel"], table["function"] = zip(*named, strict=True)
    return table.sort_values(
        ["total_ns", "mangled", "range", *CONFIGURATION], ascending=[False, *[True] * (len(CONFIGURATION) + 2)]
    )[[*COLUMNS, *(name for name in STEP_COUNTS if name in table)]].reset_index(drop=True)


def _grouped(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the number of launches and their times in ns by packed configuration, graph and range."""
    # Durations are sorted, so that sums of floats do not depend on the order of rows.
    ordered = launches.sort_values("ns", kind="stable")
    grouped = ordered.groupby([*PACKS, "graph", "range"], sort=False)["ns"]
    table = grouped.agg(["size", "sum", "mean", "median", "min", "max"])
    table["std_ns"] = grouped.std(ddof=0)
    return table.reset_index().rename(
        columns={"size": "launches", "sum": "total_ns"}
        | {name: f"{name}_ns" for name in ("mean", "median", "min", "max")}
    )


def launches_in_steps(table: pd.DataFrame) -> pd.DataFrame:
    """Return the launches inside steps; a whole-run trace also holds launches outside."""
    return table[table["range"] != OUTSIDE]


def graph_share(table: pd.DataFrame) -> float:
    """Return the share of GPU time in CUDA graphs that were traced as a whole."""
    return float(table.loc[table["function"] == GRAPH, "share"].sum())


# Exports an nsys trace: one row per launch configuration and range, and how the window's time was spent.


def export_trace(
    sqlite: str, report_sidecar: str, csv: str, steps: str, sidecar: str, say: Callable[[str], object] = print
) -> None:
    """Read the export and its sidecar, write both CSV and the table's sidecar.

    The table's sidecar is a copy of the report's. If a whole run was traced, it also has `traced_steps`: the number of
    complete steps of the window in the trace, from which values per step are computed.

    Raises:
        DataError: the trace has no launch although the cell ran on a GPU, or one of impossible times.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT, "device_type": fact.TEXT, "steps?": fact.COUNT})
    whole_run = facts["capture"] == "run"
    with nsys_trace.open_trace(sqlite) as trace:
        _refuse_impossible(trace)
        table = summarise(trace, whole_run)
        held, begins = nsys_trace.count_traced_steps(trace, whole_run)
        lacking = nsys_trace.explain_no_steps(trace, whole_run)
        spent = nsys_steps.where_time_goes(trace, whole_run)
    if table.empty and facts["device_type"] == "cuda":
        raise DataError(
            f"{sqlite} holds no kernel launch although the cell ran on a GPU: trace cuda (nsys.traces), "
            "and see the log of the profiling job"
        )
    if whole_run:
        facts = {**facts, "traced_steps": held}
    ran = held if whole_run else facts.get("steps", held)
    for note in (*_of_steps(held, ran, begins or not whole_run, lacking), *_of_graphs(table)):
        say(f"{csv}: {note}")
    write_csv(table, csv)
    write_csv(spent, steps)
    write_json(facts, sidecar)


def _refuse_impossible(trace: nsys_trace.Trace) -> None:
    """Raise DataError if operations have times that they cannot have had, as no sum is right then."""
    wrong, count = nsys_trace.find_impossible(trace)
    for first in wrong.head(1).itertuples():
        raise DataError(
            f"{trace}: {len(wrong):,} of {count:,} launches have times that cannot be, such as launch "
            f"{first.place + 1} ({first.name[:60]}), which {first.why}: {export_columns.ONCE}"
        )


def _of_steps(held: int, ran: int, begins: bool, lacking: str | None) -> Iterator[str]:
    """Return notes on the steps that a trace holds; ran: steps of the window; lacking: why there are none, or None."""
    if lacking:
        yield f"the trace {lacking}"
    elif held < ran:
        yield f"the trace holds {held} of the {ran} steps of the window: nsys lost some, so values per step are low"
    elif not begins:
        yield f"the window's beginning is not in the trace, so that the {held} whole steps there may be of warm-up"


def _of_graphs(table: pd.DataFrame) -> Iterator[str]:
    if share := graph_share(table):
        yield (
            f"{share:.0%} of GPU time is in CUDA graphs, each traced as one launch; nsys.cuda_graph: node shows their "
            "kernels"
        )
