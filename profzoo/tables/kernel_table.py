"""The one kernel table of a cell: time from nsys, counters from ncu, joined by launch configuration."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.files import read_json, write_csv
from profzoo.reading import kinds
from profzoo.reading import tables as reading
from profzoo.tables import kernel_classes
from profzoo.tables.counted_steps import NEEDS, profiled_steps
from profzoo.tables.coverage import KEYS, shares_whole
from profzoo.tools.ncu import exported, metrics
from profzoo.tools.ncu.tables import SHARED_MEMORY, UNEVEN
from profzoo.tools.nsys import tables as nsys_tables

LEADING = ["range", "class", "kernel", "function", *KEYS]
MEASURED = ["launches", "total_ns", "mean_ns", "share", "work_ratio"]
COLUMNS = [*LEADING, *MEASURED, "source", *metrics.QUANTITIES]
TYPICAL = ["time_spread", "time_ratio"]
BOTH, NSYS, NCU = "nsys+ncu", "nsys", "ncu"
TEXTS = ("range", "class", "kernel", "function", "mangled", "source")
# What one tool alone saw of, and the other did not, is empty.
TABLE = reading.Table(
    columns={name: kinds.TEXT if name in TEXTS else kinds.maybe(kinds.NUMBER) for name in COLUMNS}
    | dict.fromkeys([key for key in KEYS if key not in TEXTS], kinds.COUNT)
    | dict.fromkeys(SHARED_MEMORY, kinds.maybe(kinds.COUNT)),
    key=["range", *KEYS],
    holds=shares_whole,
)


def join(nsys: pd.DataFrame, steps: float, sets: Sequence[pd.DataFrame], classes: Mapping[str, str]) -> pd.DataFrame:
    """A row a launch configuration and range, the longest total first; what either tool alone saw has rows of its own.

    Args:
        nsys: rows of the cell's nsys.csv; steps: that they are of.
        sets: rows of the cell's ncu.{set}.csv; where several hold a quantity of a launch, the first counts.
        classes: class of each kernel by its name as either tool gives it.

    `launches` and `total_ns` are per step, `mean_ns` is of a launch, `share` of the cell's GPU time, all by nsys.
    The other quantities are ncu's, of one launch (their mean where a set holds several of a configuration). Where the
    launches of a configuration are uneven, so that the one that ncu profiled does not stand for the rest, its bytes and
    operations are taken to grow with time: `work_ratio` is the factor, of the row's mean launch. `source` names the
    tools that saw the configuration.
    """
    counters = _counters(sets)
    timed = nsys_tables.of_steps(nsys)
    timed = timed.assign(range=timed["range"].fillna(""))
    timed = timed.groupby([*KEYS, "range"], sort=False, as_index=False).agg(
        {"kernel": "first", "function": "first", "launches": "sum", "total_ns": "sum", "share": "sum"}
    )
    joined = timed.merge(counters.drop(columns=["kernel", "function", "range"]), on=KEYS, how="left", indicator=True)
    joined["source"] = joined.pop("_merge").map({"both": BOTH, "left_only": NSYS}).astype("str")
    alone = counters.merge(timed[KEYS].drop_duplicates(), on=KEYS, how="left", indicator=True)
    alone = alone[alone.pop("_merge") == "left_only"].assign(source=NCU)
    table = pd.concat([part for part in (joined, alone) if len(part)] or [joined], ignore_index=True)
    table["mean_ns"] = table["total_ns"] / table["launches"]
    table = _scaled(table)
    table[["launches", "total_ns"]] = table[["launches", "total_ns"]].astype("float64") / steps
    table["class"] = table["kernel"].map(classes)
    table = table.reindex(columns=COLUMNS)
    order = table.assign(_time=table["total_ns"].fillna(0))
    order = order.sort_values(["_time", "mangled", "range"], ascending=[False, True, True], kind="stable")
    return order[COLUMNS].reset_index(drop=True)


def time_with(table: pd.DataFrame, quantities: Sequence[str]) -> float:
    """The share of GPU time in rows that have all these quantities."""
    return float(table.loc[table[list(quantities)].notna().all(axis=1), "share"].sum())


def _scaled(table: pd.DataFrame) -> pd.DataFrame:
    """The table with `work_ratio`, and with what adds up over launches scaled by it.

    ncu counted one launch of a configuration, whose others may do more or less. Where their times differ by more than
    UNEVEN, counts are taken to grow with time: from the launch that was counted to the mean of the configuration, which
    is `time_ratio`, and from that to the mean of the row, as ranges may differ too.

    A configuration has three launches of 10 ns forward and one of 30 backward, 15 on the average. One of 10 was
    counted, and read 100 bytes: so does the mean launch forward, and the one backward reads 300.

    >>> table = pd.DataFrame({"range": ["forward", "backward"], "launches": [3, 1], "total_ns": [30.0, 30.0]})
    >>> table = table.assign(mean_ns=[10.0, 30.0], ncu_ns=11.0, dram_bytes=100.0, time_spread=3.0, time_ratio=1.5)
    >>> table[KEYS] = 1
    >>> _scaled(table)[["range", "work_ratio", "dram_bytes"]]
          range  work_ratio  dram_bytes
    0   forward         1.0       100.0
    1  backward         3.0       300.0
    """
    known = table.reindex(columns=list(dict.fromkeys([*table.columns, *TYPICAL, "ncu_ns"])))
    configurations = known.groupby(KEYS, dropna=False)
    mean_ns = configurations["total_ns"].transform("sum") / configurations["launches"].transform("sum")
    row_over_mean = (known["mean_ns"] / mean_ns).astype("float64").fillna(1.0)
    uneven = known["time_spread"] > UNEVEN
    ratio = (known["time_ratio"] * row_over_mean).where(uneven).fillna(1.0)
    scaled = table[[name for name in metrics.ADDITIVE if name in table]].mul(ratio, axis=0)
    return table.assign(work_ratio=ratio.where(known["ncu_ns"].notna()), **scaled)


def _counters(sets: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """A row a configuration that ncu saw: names, range of its first launch, and the quantities."""
    names = ["kernel", "function", "range"]
    frames = []
    for table in sets:
        values = metrics.derive(table)
        values = values.assign(**{name: table[name] for name in TYPICAL if name in table})
        keyed = pd.concat([table[[*KEYS, *names]], values], axis=1)
        how = dict.fromkeys(names, "first") | dict.fromkeys(values.columns, "mean")
        frames.append(keyed.groupby(KEYS, sort=False).agg(how))
    if not frames:
        return pd.DataFrame(columns=[*KEYS, *names])
    combined = frames[0]
    for frame in frames[1:]:
        combined = combined.combine_first(frame)
    combined["range"] = combined["range"].fillna("")
    return combined.reset_index()


def main(nsys: str, sidecar: str, sets: Sequence[str], csv: str) -> None:
    """Read a cell's exported CSV and write its table; sets: of ncu, the one that counts first."""
    traced, counted = reading.read(nsys, nsys_tables.TABLE), [reading.read(path, exported.TABLE) for path in sets]
    names = pd.concat([table["kernel"] for table in (traced, *counted)]).unique()
    classes = kernel_classes.classify_all(names)
    write_csv(join(traced, profiled_steps(read_json(sidecar, NEEDS)), counted, classes), csv)
