"""Matches collective operations of a cell's processes, and makes the tables of them and of late processes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables
from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, COUNT, CPU, GPU, TEXT, WHOLE, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.op_costs.collectives import TOGETHER, bus_factor
from profzoo.range_names import LAUNCHING
from profzoo.tools.defaults import files_by_rank
from profzoo.tools.kernel_signature import communicates
from profzoo.tools.nsys.events.intervals import find_open
from profzoo.tools.torch import collective_events, trace
from profzoo.tools.torch.collective_events import Collectives, read_collectives
from profzoo.tools.torch.command import OF_PROCESS
from profzoo.tools.torch.trace import Trace, find_ranges, launch_times, range_spans

# Puts the clocks of several hosts onto one, by operations that end on all of them at the same time.

# Part of the residuals that the stated error of aligned clocks covers.
COVERED = 0.95
# How the times of processes came to one clock: they share a host, or their operations end together.
SHARED, ENDS = "host", "ends"


@dataclass(frozen=True)
class Clocks:
    """How to put times onto the clock of the first rank's host.

    offsets_ns: what to subtract from the times of each host. kind: SHARED or ENDS. error_ns: largest deviation of the
    ends of an operation on two hosts, in COVERED of all cases; None with one host, whose clock needs no alignment.
    """

    offsets_ns: Mapping[str, int]
    kind: str
    error_ns: float | None


def align_clocks(operations: pd.DataFrame) -> Clocks:
    """Find the offsets of hosts' clocks.

    operations: one row per operation and process, with columns operation, collective, host, rank and end_ns.

    Raises:
        DataError: a host took part in no operation that ends on it and on another host together.
    """
    first = str(operations.sort_values("rank", kind="stable")["host"].iloc[0])
    hosts = sorted(set(operations["host"]))
    if len(hosts) == 1:
        return Clocks({first: 0}, SHARED, None)
    together = operations[operations["collective"].isin(TOGETHER)]
    # Times since 1970 in ns are too large for floating-point numbers, which the pivot makes of them.
    together = together.assign(end_ns=together["end_ns"] - operations["end_ns"].min())
    ends = together.pivot_table(index="operation", columns="host", values="end_ns", aggfunc="max")
    offsets = {first: 0}
    while missing := [host for host in hosts if host not in offsets]:
        known = [host for host in offsets if host in ends]
        found = {host: _offset(ends, host, known, offsets) for host in missing if host in ends}
        reached = {host: offset for host, offset in found.items() if offset is not None}
        if not reached:
            raise DataError(
                f"the clock of {missing[0]} cannot be compared with that of {first}: no collective operation joins them"
            )
        offsets |= reached
    aligned = ends[hosts] - pd.Series(offsets)
    residuals = aligned.sub(aligned.median(axis=1), axis=0).abs().stack()
    return Clocks(offsets, ENDS, float(residuals.quantile(COVERED)) * 2)


def _offset(ends: pd.DataFrame, host: str, known: list[str], offsets: Mapping[str, int]) -> int | None:
    """Return the offset of a host's clock from that of the known hosts; None if no operation joins them."""
    reference = (ends[known] - pd.Series({one: offsets[one] for one in known})).median(axis=1)
    apart = (ends[host] - reference).dropna()
    return round(apart.median()) if len(apart) else None


# Matches the collective operations of a cell's processes, and separates waiting for late processes from transfer.
#
# An operation can only begin to transfer when the last process has come to it. So its transfer lasts from the last
# start to the last end, and a process that came earlier has waited from its own start to the last one.

# What is the same for all processes of an operation, besides its place among others like it.
SAME = ["group", "group_size", "collective", "dtype", "bytes"]
OF_ALL = ["first_start_ns", "last_start_ns", "last_end_ns"]


class NoOperationsError(DataError):
    """The traces hold no operation that all of its processes recorded; the message says why."""


@dataclass(frozen=True)
class Process:
    """A process of a cell: its host, its rank, and its operations."""

    host: str
    rank: int
    collectives: Collectives


@dataclass(frozen=True)
class Operations:
    """Operations of all processes on one clock.

    rows: one row per operation and process, by start: operation (a number), host, rank, step, range, SAME, start_ns,
    end_ns, and OF_ALL, which are the same for all processes of an operation. clocks: how times came to one clock.
    left_out: one clause for each kind of operation that the rows lack, with its number and the reason.
    """

    rows: pd.DataFrame
    clocks: Clocks
    left_out: Sequence[str]


def match_operations(processes: Sequence[Process]) -> Operations:
    """Match the operations of processes.

    Operations on the same group, of one kind and size, are matched by the number that NCCL gave them, or else by their
    order within a step.

    Raises:
        NoOperationsError: no operation was recorded by all of its processes.
        DataError: the clocks of hosts cannot be compared.
    """
    frames = [one.collectives.table.assign(host=one.host, rank=one.rank) for one in processes]
    rows = pd.concat(frames, ignore_index=True)
    # Without a number, steps keep an operation that one process did not record from shifting all later ones.
    numbered = (rows["sequence"] >= 0).all()
    rows["of"] = rows["sequence"] if numbered else rows["step"]
    rows["place"] = rows.groupby(["rank", *SAME, "of"]).cumcount()
    rows["operation"] = rows.groupby([*SAME, "of", "place"], sort=False).ngroup()
    members = rows.groupby("operation")["rank"].transform("nunique")
    # Some of torch's operations name no group: all processes of the cell are meant.
    whole = members == rows["group_size"].where(rows["group_size"] > 0, len(processes))
    found = rows[whole & (members > 1)].copy()
    if found.empty:
        raise NoOperationsError(_why_none(rows, processes))
    clocks = align_clocks(found)
    shift = found["host"].map(clocks.offsets_ns).astype("int64")
    found["start_ns"] -= shift
    found["end_ns"] -= shift
    grouped = found.groupby("operation")
    found["first_start_ns"] = grouped["start_ns"].transform("min")
    found["last_start_ns"] = grouped["start_ns"].transform("max")
    found["last_end_ns"] = grouped["end_ns"].transform("max")
    kept = found[found["last_end_ns"] > found["last_start_ns"]]
    if kept.empty:
        raise DataError("every collective operation ends on all processes before the last one begins it: clocks differ")
    incomplete = rows["operation"].nunique() - kept["operation"].nunique()
    left_out = [f"{incomplete} operation{'s' * (incomplete > 1)} that not all processes recorded"] if incomplete else []
    left_out += _describe_unmatched(processes)
    columns = ["operation", "host", "rank", "step", "range", *SAME, "start_ns", "end_ns", *OF_ALL]
    return Operations(kept.sort_values(["start_ns", "rank"])[columns].reset_index(drop=True), clocks, left_out)


def _describe_unmatched(processes: Sequence[Process]) -> list[str]:
    """Return a clause for each kind of communication whose bandwidth and skew cannot be told."""
    pairwise = sum(one.collectives.pairwise for one in processes)
    unknown = sum(one.collectives.unknown for one in processes)
    found = [f"{pairwise} sends and receives, in which only two processes take part"] if pairwise else []
    if unknown:
        found.append(
            f"{unknown} communication kernels without `Collective name`, size or type, which torch.profiler records "
            "from torch 2.3 on, but not for batch_isend_irecv"
        )
    return found


def _why_none(rows: pd.DataFrame, processes: Sequence[Process]) -> str:
    if rows.empty and (others := _describe_unmatched(processes)):
        return f"the traces hold no other communication than {' and '.join(others)}: bandwidth and skew cannot be told"
    if rows.empty:
        return "the steps of the traces hold no collective operation: raise torch.window, so that more steps are traced"
    counts = ", ".join(f"{count} of rank {rank}" for rank, count in rows["rank"].value_counts().sort_index().items())
    return f"no collective operation was recorded by all processes of its group: there are {counts}; raise torch.window"


def measure_transfers(operations: Operations) -> pd.DataFrame:
    """Return one row per operation: SAME, step, transfer_ns, and the mean waiting_ns of its processes."""
    rows = operations.rows.assign(waiting_ns=operations.rows["last_start_ns"] - operations.rows["start_ns"])
    one = rows.groupby("operation").agg(
        {**dict.fromkeys([*SAME, "step", *OF_ALL], "first"), "waiting_ns": "mean", "host": "nunique"}
    )
    one["transfer_ns"] = (one["last_end_ns"] - one["last_start_ns"]).astype(np.int64)
    return one.rename(columns={"host": "hosts"})[[*SAME, "hosts", "step", "transfer_ns", "waiting_ns"]]


# Tells how long a process spent in each part of its step until any moment, from its trace.
#
# While the GPU computes, the time belongs to the part that launched the kernel; while it does not, to the part that the
# host is in. Communication kernels do not count as computing, as they also wait.

# The parts that time is told apart by; the first is outside of all.
PARTS = ("", *LAUNCHING)


@dataclass(frozen=True)
class Timeline:
    """The part of the step of a process at each time.

    begins: times in ns at which the part changes. parts: index in PARTS from each of them on. spent: time in each part
    before each of them, of shape (times, parts). first_ns: when the process was first in a part or a kernel.
    """

    begins: np.ndarray
    parts: np.ndarray
    spent: np.ndarray
    first_ns: int

    def until(self, moments: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the time in ns spent in each part before the moments; shape (moments, parts)."""
        times = np.asarray(moments, dtype=np.int64)
        last = np.searchsorted(self.begins, times, side="right") - 1
        found = self.spent[np.maximum(last, 0)].copy()
        # Before the first time, the process is outside all parts.
        parts = np.where(last >= 0, self.parts[np.maximum(last, 0)], 0)
        found[np.arange(len(times)), parts] += times - self.begins[np.maximum(last, 0)]
        return found


def make_timeline(trace: Trace, base_ns: int) -> Timeline:
    """Make the timeline of a process; base_ns: what the times of its trace begin from."""
    host = range_spans(trace, LAUNCHING)
    busy = _busy(trace)
    edges = np.unique(np.concatenate([*host[:2], *busy[:2], np.zeros(1, dtype=np.int64)]))
    parts = np.where((computing := _part_at(edges, busy)) >= 0, computing, np.maximum(_part_at(edges, host) + 1, 0))
    lengths = np.diff(edges, append=edges[-1])
    spent = np.zeros((len(edges) + 1, len(PARTS)), dtype=np.int64)
    spent[np.arange(1, len(edges) + 1), parts] = lengths
    first = min((int(starts[0]) for starts, _, _ in (host, busy) if len(starts)), default=0)
    return Timeline(edges + base_ns, parts, np.cumsum(spent, axis=0)[:-1], first + base_ns)


def _busy(trace: Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, end and part of the launches that compute, without their overlaps."""
    launches = trace.launches
    texts = np.array([communicates(text) for text in trace.texts] or [False])
    chosen = np.flatnonzero(~texts[launches["name"]]) if len(launches["name"]) else np.zeros(0, dtype=np.int64)
    chosen = chosen[np.argsort(launches["start"][chosen], kind="stable")]
    starts = launches["start"][chosen].astype(np.int64)
    ends = starts + launches["ns"][chosen]
    parts = find_ranges(launch_times(trace)[chosen], trace)
    before = np.maximum.accumulate(np.concatenate([[np.iinfo(np.int64).min], ends]))[:-1]
    starts = np.maximum(starts, before)
    kept = starts < ends
    return starts[kept], ends[kept], parts[kept]


def _part_at(times: np.ndarray, spans: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the code of the span that holds each time; -1 if none does."""
    starts, ends, codes = spans
    return np.append(codes, -1)[find_open(times, starts, ends)]


# Makes the table of skew: which process comes late to collective operations, by how much, and in which part.
#
# A process is late at an operation by the time between the first process's start and its own. What it lost in each part
# of its step is the time that it spent there since the processes were last together, less that of the first process. So
# the parts add up to how late it is. If processes come to several operations before they are together again, as they do
# with operations beside the backward pass, the same delay shows in each of them: the largest counts.

RANK_SKEW_KEY = ["rank", "step", "range"]
COLUMNS = ["host", *RANK_SKEW_KEY, "late_ns", "waiting_ns", "last", "operations", "clock", "clock_error_ns"]
TABLE = Table(
    columns={
        "host": Column(TEXT, "Name of the node that the process ran on.", tool="torch"),
        "range": Column(TEXT, "Part of the step, or empty for time between parts and steps.", tool="torch"),
        "clock": Column(
            TEXT, f"`{SHARED}` if all processes share the clock of one host, `{ENDS}` if clocks of hosts were "
            "aligned by the ends of operations.", tool="torch"),
        "rank": Column(COUNT, "Rank of the process.", tool="torch"),
        "step": Column(COUNT, "Number of the step in the trace, counted from 0.", tool="torch"),
        "last": Column(COUNT, "Operations of this part at which the process came last.", "count", "torch"),
        "operations": Column(
            COUNT, "Collective operations that the process starts in this part of the step.", "count", "torch"),
        "late_ns": Column(
            WHOLE, "How much later than the first process this one comes to collective operations because of this "
            "part; less than 0 where it was faster. A step's parts add up to its lateness.", "ns", "torch", GPU),
        "waiting_ns": Column(
            AMOUNT, "How long the process waits for later ones in the operations that this part starts.",
            "ns", "torch", GPU),
        "clock_error_ns": Column(
            AMOUNT.or_missing, "How far ends of an operation lie apart on two hosts after that, in 95 % of all "
            "cases; empty with one host.", "ns", "torch", CPU),
    },
    key=RANK_SKEW_KEY,
)  # fmt: skip


def tabulate_skew(operations: Operations, timelines: Mapping[int, Timeline]) -> pd.DataFrame:
    """Return one row per process, step and part of the step; timelines: by rank."""
    rows = _since_together(operations, timelines)
    rows["late_ns"] = rows["start_ns"] - rows["first_start_ns"]
    rows["waiting_ns"] = rows["last_start_ns"] - rows["start_ns"]
    rows["last"] = (rows["late_ns"] > 0) & (rows["waiting_ns"] == 0)
    of_process = rows.groupby(["rank", "group", "together"])
    counted = rows.index.isin(of_process["waiting_ns"].idxmax())
    started = rows.assign(waiting_ns=rows["waiting_ns"].where(counted, 0), operations=1)
    sums = started.groupby(RANK_SKEW_KEY)[["waiting_ns", "last", "operations"]].sum()
    late = _lost_by_part(rows.loc[of_process["late_ns"].idxmax()], rows, timelines, operations.clocks.offsets_ns)
    table = late.to_frame().join(sums, how="outer").fillna(0)
    table = table[(table != 0).any(axis=1)].astype("int64").reset_index()
    places = {part: place for place, part in enumerate(PARTS)}
    hosts = dict(zip(rows["rank"], rows["host"], strict=True))
    error = operations.clocks.error_ns
    table = table.assign(host=table["rank"].map(hosts), clock=operations.clocks.kind)
    table["clock_error_ns"] = pd.NA if error is None else error
    order = table.assign(place=table["range"].map(places)).sort_values(["step", "rank", "place"]).index
    return table.loc[order, COLUMNS].reset_index(drop=True)


def _since_together(operations: Operations, timelines: Mapping[int, Timeline]) -> pd.DataFrame:
    """Return the operations' rows with `since_ns`, when all were last together before, and `together`, its number.

    Processes are together when the last one has come to an operation, before the first one comes to the next.
    """
    rows, offsets = operations.rows, operations.clocks.offsets_ns
    hosts = dict(zip(rows["rank"], rows["host"], strict=True))
    begin = min(line.first_ns - offsets[hosts[rank]] for rank, line in timelines.items() if rank in hosts)
    frames = []
    for _, own in rows.groupby("group"):
        ends = own.drop_duplicates("operation").sort_values("last_start_ns")
        last = np.searchsorted(ends["last_start_ns"].to_numpy(), own["first_start_ns"].to_numpy(), side="right") - 1
        since = np.where(last >= 0, ends["last_end_ns"].to_numpy()[np.maximum(last, 0)], begin)
        frames.append(own.assign(together=last, since_ns=np.minimum(since, own["first_start_ns"].to_numpy())))
    return pd.concat(frames).sort_index()


def _lost_by_part(
    late: pd.DataFrame, rows: pd.DataFrame, timelines: Mapping[int, Timeline], offsets: Mapping[str, int]
) -> pd.Series:
    """Return the time in ns that processes lost, by rank, step and part; late: the rows in which they were latest."""
    firsts = rows[rows["late_ns"] == 0].drop_duplicates("operation").set_index("operation")
    first = firsts.loc[late["operation"]].assign(since_ns=late["since_ns"].to_numpy()).reset_index()
    lost = _spent(late, timelines, offsets) - _spent(first, timelines, offsets)
    by_part = pd.DataFrame(lost, columns=pd.Index(PARTS, name="range"))
    by_part[["rank", "step"]] = late[["rank", "step"]].to_numpy()
    return by_part.groupby(["rank", "step"]).sum().stack().rename("late_ns")


def _spent(rows: pd.DataFrame, timelines: Mapping[int, Timeline], offsets: Mapping[str, int]) -> np.ndarray:
    """Return the time in ns that the rows' processes spent in each part between since_ns and start_ns."""
    found = np.zeros((len(rows), len(PARTS)), dtype=np.int64)
    shift = rows["host"].map(offsets).to_numpy(dtype=np.int64)
    begins, ends = (rows[name].to_numpy(dtype=np.int64) + shift for name in ("since_ns", "start_ns"))
    ranks = rows["rank"].to_numpy()
    for rank in np.unique(ranks):
        chosen = np.flatnonzero(ranks == rank)
        line = timelines[int(rank)]
        found[chosen] = line.until(ends[chosen]) - line.until(begins[chosen])
    return found


KEY = ["collective", "dtype", "bytes", "group_size", "hosts"]
TIMES = ["transfer_ns", "transfer_min_ns", "transfer_max_ns", "waiting_ns"]
RATES = ["algorithm_bytes_per_s", "bus_bytes_per_s", "probe_bus_bytes_per_s", "probe_share"]
COLLECTIVE_COLUMNS = [*KEY, "count", *TIMES, *RATES, "link"]
CALL_TABLE = Table(
    columns={
        "collective": Column(TEXT, "Collective operation, such as `all_reduce`.", tool="torch"),
        "dtype": Column(TEXT, "Type of its elements, as torch.profiler names it.", tool="torch"),
        **select(collective_events.TABLE.columns, "link"),
        "bytes": Column(COUNT, "Size of the operation, as nccl-tests counts it: of the whole buffer.", "byte", "torch"),
        "group_size": Column(COUNT, "Processes that take part.", "count", "torch"),
        "hosts": Column(COUNT, "Hosts on which these processes run.", "count", "torch"),
        "count": Column(
            COUNT, "Operations in the traced steps; one counts once for all of its processes.", "count", "torch"),
        "transfer_ns": Column(
            AMOUNT, "Median time from the moment when the last process begins the operation to its end: without "
            "waiting.", "ns", "torch", GPU),
        "transfer_min_ns": Column(AMOUNT, "Shortest such time.", "ns", "torch", GPU),
        "transfer_max_ns": Column(AMOUNT, "Longest such time.", "ns", "torch", GPU),
        "waiting_ns": Column(
            AMOUNT, "Mean time that a process waits in the operation for the last one to begin it.",
            "ns", "torch", GPU),
        "algorithm_bytes_per_s": Column(
            AMOUNT.or_missing, "Algorithm bandwidth of nccl-tests: size over `transfer_ns`.", "byte/s", "torch", GPU),
        "bus_bytes_per_s": Column(
            AMOUNT.or_missing, "Bus bandwidth of nccl-tests: the same times 2(n-1)/n for an all-reduce of n "
            "processes, and (n-1)/n for all-gather, reduce-scatter and all-to-all.", "byte/s", "torch", GPU),
        "probe_bus_bytes_per_s": Column(
            AMOUNT.or_missing, "Bus bandwidth that a probe of the link reached with this operation and size and "
            "nothing beside it, interpolated between sizes; empty if the link was not probed.", "byte/s"),
        "probe_share": Column(AMOUNT.or_missing, "`bus_bytes_per_s` over that of the probe.", "fraction"),
    },
    key=KEY,
    ranges={"transfer_ns": ("transfer_min_ns", "transfer_max_ns")},
)  # fmt: skip


def tabulate_collectives(operations: Operations, probe: pd.DataFrame) -> pd.DataFrame:
    """Return one row per kind, type, size and group of operations, the longest total transfer first.

    probe: rows of link_rates.TABLE; none if the link was not probed.
    """
    grouped = measure_transfers(operations).groupby(KEY, sort=False)
    table = grouped.agg(
        count=("transfer_ns", "size"),
        transfer_ns=("transfer_ns", "median"),
        transfer_min_ns=("transfer_ns", "min"),
        transfer_max_ns=("transfer_ns", "max"),
        waiting_ns=("waiting_ns", "mean"),
        total=("transfer_ns", "sum"),
    ).reset_index()
    table["algorithm_bytes_per_s"] = (table["bytes"] / table["transfer_ns"] * 1e9).where(table["bytes"] > 0)
    table["bus_bytes_per_s"] = [
        row.algorithm_bytes_per_s * bus_factor(str(row.collective), int(row.group_size)) for row in table.itertuples()
    ]
    table["probe_bus_bytes_per_s"] = [
        collective_events.reached_bus_rate(probe, str(row.collective), int(row.bytes), int(row.group_size))
        for row in table.itertuples()
    ]
    table["probe_share"] = table["bus_bytes_per_s"] / table["probe_bus_bytes_per_s"]
    links = sorted({str(link) for link in probe["link"] if link})
    table["link"] = ", ".join(links)
    return table.sort_values("total", ascending=False, kind="stable")[COLLECTIVE_COLUMNS].reset_index(drop=True)


# Exports the collective operations of a cell's processes from their traces, and how late each process comes.

FACTS: fact.Needs = {"ranks": fact.PROCESSES}


def export_collectives(
    traces: str, sidecar: str, links: Sequence[str], outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read the traces of a cell's processes from a folder, and write CSV: `collectives` and `skew`.

    sidecar: of the traces. links: path of the measured links between the GPUs, if there is one. Where no operation can
    be matched, both tables have no rows, and a line says why.

    Raises:
        DataError: a process left no trace, or the clocks of hosts cannot be compared.
    """
    ending, count = OF_PROCESS["trace"], len(read_facts(sidecar, FACTS)["ranks"])
    processes, timelines = [], {}
    for host, rank, path in files_by_rank(Path(traces).glob(f"*{ending}"), ending, count, "trace"):
        events = trace.read_trace(path, say)
        found = read_collectives(path, events)
        processes.append(Process(host, rank, found))
        timelines[rank] = make_timeline(events, found.base_ns)
    try:
        operations = match_operations(processes)
    except NoOperationsError as error:
        say(f"{outputs['collectives']} has no rows: {error}")
        write_csv(CALL_TABLE.empty(), outputs["collectives"])
        write_csv(TABLE.empty(), outputs["skew"])
        return
    if operations.left_out:
        say(f"{outputs['collectives']} is without {' and '.join(operations.left_out)}")
    probe = csv_tables.read(links[0], collective_events.TABLE) if links else collective_events.TABLE.empty()
    write_csv(tabulate_collectives(operations, probe), outputs["collectives"])
    write_csv(tabulate_skew(operations, timelines), outputs["skew"])
