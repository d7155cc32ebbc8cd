"""Reads from an nsys export (SQLite) what threads of the host did: calls, context switches, samples and names."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np
import pandas as pd

from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.export_columns import UNKNOWN
from profzoo.tools.nsys.events.trace import CALL_TABLE, LAUNCHING, PROCESS, Source, Trace, open_trace, read_window_steps

# Reads call stacks of CPU samples and of calls of the operating system from an nsys export (SQLite).

# What stands for functions whose names nsys did not find, of which each address would be another one.
UNRESOLVED = "[unresolved]"
# Names that nsys gives to ends of stacks, which are not functions.
NO_FUNCTIONS = ("[Max depth]", "[Broken backtraces]")


def read_stacks(trace: Trace, table: str, stacks: Collection[int]) -> pd.DataFrame:
    """Return one row per function of these stacks: `stack`, `function`, `module`, `depth`; the innermost have depth 0.

    table: SAMPLING_CALLCHAINS or OSRT_CALLCHAINS, which an export may lack. stacks: numbers of its stacks. `module` is
    the name of the file without its folder.
    """
    columns = {"stack": "id", "symbol": "symbol", "module": "module", "depth": "stackDepth"}
    span = f"{int(min(stacks))} AND {int(max(stacks))}" if len(stacks) else "1 AND 0"
    frames = trace.read_numbers(table, columns, f"WHERE id BETWEEN {span}")
    frames = frames[frames["stack"].isin(list(stacks))].sort_values(["stack", "depth"], ignore_index=True)
    names = trace.texts
    symbols = {number: names.get(number, UNRESOLVED) for number in frames["symbol"].unique().tolist()}
    modules = {number: PurePath(names.get(number, "")).name for number in frames["module"].unique().tolist()}
    functions = frames["symbol"].map(symbols).astype("str").str.replace(r"^0x[0-9a-f]+$", UNRESOLVED, regex=True)
    named = frames.assign(function=functions, module=frames["module"].map(modules).astype("str"))
    return named[~named["function"].isin(NO_FUNCTIONS)][["stack", "function", "module", "depth"]]


SYSTEM_CALLS, SWITCHES, SAMPLES = "OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS"
CALL_CHAINS, SAMPLE_CHAINS, THREAD_NAMES = "OSRT_CALLCHAINS", "SAMPLING_CALLCHAINS", "ThreadNames"
# By `--osrt-file-access=true` of newer releases.
FILE_ACCESSES, FILES = "OSRT_FILE_ACCESS_EVENTS", "OSRT_FILE_ACCESS_DESCRIPTORS"
# Columns without which a table says nothing.
NEEDED: Mapping[str, Sequence[str]] = {
    SYSTEM_CALLS: ("start", "end", "globalTid", "nameId"),
    SWITCHES: ("start", "isSchedIn", "globalTid"),
    SAMPLES: ("id", "start", "globalTid"),
    SAMPLE_CHAINS: ("id", "symbol", "module", "stackDepth"),
}
# What collects a table, for users who have not set it.
COLLECTED_BY: Mapping[str, str] = {
    SYSTEM_CALLS: "have osrt in nsys.traces",
    SWITCHES: "set nsys.cpuctxsw to process-tree",
    SAMPLES: "set nsys.sample to process-tree",
}
# What is unknown without a table, and what collects it.
LACKING: Mapping[str, str] = {
    SYSTEM_CALLS: "calls of the operating system, so it is unknown what threads waited for: "
    + COLLECTED_BY[SYSTEM_CALLS],
    SWITCHES: f"context switches, so time on and off the CPU is unknown: {COLLECTED_BY[SWITCHES]}",
    SAMPLES: f"CPU samples, so it is unknown which functions ran: {COLLECTED_BY[SAMPLES]}",
}
# Threads that nsys and CUPTI start within a traced process. They do nothing for it and are left out.
THREADS_OF_TOOLS = ("[NSys]", "[NSys Comms]", "CUPTI worker thread")
# The bits of a globalTid that name the thread; 0 where the export does not know it.
THREAD = 0xFFFFFF


@dataclass(frozen=True)
class HostEvents:
    """What threads of the host did in a trace; times in ns; a thread is nsys's globalTid.

    Attributes:
        steps: `process`, `step` (counted from 0 in each process), `start`, `end` and `thread`, which ran it.
        os_calls: `thread`, `start`, `end`, `name` and `chain`, a row per call of the operating system's libraries that
            no other call of its thread contains. chain: the number of the call stack, 0 for none.
        cuda_calls: the same of CUDA calls, without `chain`; names without their versions.
        switches: `thread`, `start`, `cpu`, `enters` (1 where the thread comes to the CPU, 0 where it leaves), and
            `state` in which it leaves (export_columns.UNKNOWN where the export does not say).
        samples: `thread`, `start` and `sample`, the number of the sample.
        files: `number`, `start`, `end` and `file`, a row per access to a file: the thread's number in the operating
            system, and the file's name without its folder. Only newer releases of nsys record them, where asked for.
        cuda: whether the trace has calls of CUDA; none where none was made, and where they were not traced.
        names: names of threads.
        lacking: tables of the export that were not recorded or cannot be used, each with what is unknown without it.
    """

    steps: pd.DataFrame
    os_calls: pd.DataFrame
    cuda_calls: pd.DataFrame
    switches: pd.DataFrame
    samples: pd.DataFrame
    files: pd.DataFrame
    cuda: bool
    names: Mapping[int, str]
    lacking: Mapping[str, str]

    def identify(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table with the numbers of process and thread instead of nsys's `thread`, and the thread's `name`."""
        whole = table["thread"].to_numpy(dtype=np.int64)
        named = [self.names.get(number, "") for number in whole.tolist()]
        return table.assign(process=whole >> 24 & 0xFFFFFF, thread=whole & THREAD, name=named)


def read_host_events(source: Source, whole_run: bool = False) -> HostEvents:
    """Return what threads of the host did in a trace with the window's steps.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        steps = read_window_steps(trace, whole_run)[["process", "start", "end", "thread"]]
        known = steps["thread"].where(steps["thread"] & THREAD != 0, UNKNOWN)
        numbered = steps.assign(step=steps.groupby("process").cumcount(), thread=known)
        return replace(read_threads(trace), steps=numbered[["process", "start", "end", "step", "thread"]])


def read_threads(trace: Trace, unread: Collection[str] = ()) -> HostEvents:
    """Return what threads did, without steps. unread: tables that nobody needs.

    Threads of nsys itself are left out.
    """
    lacking = {table: why for table in LACKING if (why := explain_missing(trace, table))}
    unusable = {*lacking, *unread}
    calls = _read(trace, unusable, SYSTEM_CALLS, ["globalTid", "start", "end", "nameId", "callchainId"])
    calls = calls[calls["end"] > calls["start"]]
    cuda = _of_threads(trace.calls.rename(columns={"thread": "globalTid", "name": "nameId"}))[[*NEEDED[SYSTEM_CALLS]]]
    samples = _read(trace, unusable, SAMPLES, ["globalTid", "start", "id", "cpuCycles"])
    switches = _read(trace, unusable, SWITCHES, ["globalTid", "start", "cpu", "isSchedIn", "threadState"])
    threads = _read(trace, (), THREAD_NAMES, ["globalTid", "nameId"])
    known = {int(thread): trace.texts.get(int(name), "") for thread, name in threads.itertuples(index=False)}
    of_tools = [thread for thread, name in known.items() if name in THREADS_OF_TOOLS]
    calls, cuda, samples, switches = (
        events[~events["globalTid"].isin(of_tools)] for events in (calls, cuda, samples, switches)
    )
    return HostEvents(
        steps=pd.DataFrame(columns=["process", "step", "start", "end", "thread"], dtype="int64"),
        os_calls=_outermost(_named(calls, trace.texts)).assign(chain=lambda held: held["chain"].clip(lower=0)),
        cuda_calls=_outermost(_named(cuda, trace.texts)),
        switches=_ordered(switches).assign(enters=lambda held: (held["enters"] != 0).astype("int64")),
        # Other stacks are of context switches, not of what ran.
        samples=_ordered(samples[samples["cpuCycles"] != 0])[["thread", "start", "sample"]],
        files=_read_files(trace, unread),
        cuda=CALL_TABLE in trace.tables,
        names=known,
        lacking=lacking,
    )


def explain_missing(trace: Trace, table: str) -> str | None:
    """Return why nothing can be read from a table of LACKING, or None."""
    if table not in trace.tables:
        return f"the trace holds no {LACKING[table]}"
    absent = [name for name in NEEDED[table] if name not in trace.find_columns(table)]
    return f"the export's table {table} has no column {absent[0]}, so it counts as not recorded" if absent else None


def launching_calls(calls: pd.DataFrame, process: int, span: tuple[int, int]) -> pd.DataFrame:
    """Return the CUDA calls of a process that launch work within a span of ns, in the order of their ends.

    calls: HostEvents.cuda_calls.
    """
    own = (calls["thread"] & PROCESS == process) & (calls["end"] > span[0]) & (calls["start"] < span[1])
    mine = calls[own]
    return mine[mine["name"].str.startswith(LAUNCHING)].sort_values("end", kind="stable")


def _read(trace: Trace, unread: Collection[str], table: str, columns: Sequence[str]) -> pd.DataFrame:
    """Return integer columns of a table of what threads did; no row of a table that is not to be read."""
    if table in unread:
        return pd.DataFrame(columns=list(columns), dtype="int64")
    return _of_threads(trace.read_numbers(table, columns))


def _of_threads(events: pd.DataFrame) -> pd.DataFrame:
    """Leave out thread 0, which is none: the kernel's idle one, or one that the export does not know."""
    return events[(events["globalTid"] & THREAD != 0) & (events["globalTid"] != UNKNOWN)]


def _read_files(trace: Trace, unread: Collection[str]) -> pd.DataFrame:
    """Return accesses to files by thread and start, as HostEvents has them."""
    columns = {"number": "threadId", "start": "startedAt", "end": "endedAt", "file": "fileAccessId"}
    found = pd.DataFrame(columns=list(columns), dtype="int64")
    if FILE_ACCESSES not in unread:
        found = trace.read_numbers(FILE_ACCESSES, columns)
    names: dict[int, str] = {}
    if {"fileAccessId", "filePath"} <= trace.find_columns(FILES):
        # Names of files may hold any bytes.
        rows = trace.database.execute(f"SELECT fileAccessId, CAST(filePath AS BLOB) FROM {FILES}")
        names = {number: PurePath((path or b"").decode(errors="replace")).name for number, path in rows}
    texts = {number: names.get(number, "") for number in found["file"].unique().tolist()}
    named = found.assign(file=found["file"].map(texts).astype("str"), number=found["number"] & THREAD)
    return named.sort_values(["number", "start"], kind="stable", ignore_index=True)


def _named(calls: pd.DataFrame, names: Mapping[int, str]) -> pd.DataFrame:
    texts = {number: names.get(number, "") for number in calls["nameId"].unique().tolist()}
    shown = calls["nameId"].map(texts).astype("str").str.replace(r"_v\d+$", "", regex=True)
    return calls.assign(name=shown).drop(columns="nameId")


def _ordered(events: pd.DataFrame) -> pd.DataFrame:
    """Return events under the names that HostEvents has, by thread and start."""
    named = {"globalTid": "thread", "callchainId": "chain", "isSchedIn": "enters", "threadState": "state"}
    return events.rename(columns=named | {"id": "sample"}).sort_values(
        ["thread", "start"], kind="stable", ignore_index=True
    )


def _outermost(calls: pd.DataFrame) -> pd.DataFrame:
    """Return the calls that no other call of their thread contains, by thread and start."""
    found = _ordered(calls.sort_values("end", ascending=False, kind="stable"))
    reached = found.groupby("thread")["end"].transform(lambda ends: ends.cummax().shift(fill_value=-(2**62)))
    return found[found["end"] > reached].reset_index(drop=True)


# Makes of context switches when each thread was on a CPU and when it was not, and in which call it left.

# Times before and after any event of a trace, in ns.
BEFORE, AFTER = -(2**61), 2**61
# What a thread does: it is on a CPU, or off it. Where a switch was lost, neither is known.
RUNNING, OFF, LOST = "running", "off", "lost"
# The state in which a thread leaves the CPU that it was taken from: it could have gone on.
COULD_RUN = 1


def find_states(switches: pd.DataFrame) -> pd.DataFrame:
    """Return one row per stretch of a thread on or off the CPU, from before the trace to after it.

    switches: HostEvents.switches, by thread and start.

    Returns: `thread`, `start`, `end` (ns), `doing` (RUNNING, OFF or LOST), `cpu` (of RUNNING), and `state`, the state
    in which the thread left the CPU (of OFF). Before its first switch a thread did the opposite of what it did after
    it. Two switches in a row that both come to a CPU, or both leave one, are a lost switch between them.

    >>> switches = pd.DataFrame({"thread": 1, "start": [10, 30, 60], "cpu": [0, 2, 2], "enters": [0, 1, 1], "state": 2})
    >>> found = find_states(switches)
    >>> found[["start", "end"]].clip(0, 100).to_numpy().tolist(), found["doing"].tolist(), found["cpu"].tolist()
    ([[0, 10], [10, 30], [30, 60], [60, 100]], ['running', 'off', 'lost', 'running'], [0, -1, -1, 2])
    """
    by_thread = switches.groupby("thread", sort=False)
    following = by_thread["start"].shift(-1, fill_value=AFTER).to_numpy()
    then = by_thread["enters"].shift(-1, fill_value=UNKNOWN).to_numpy()
    enters = switches["enters"].to_numpy()
    after = switches.assign(end=following, doing=_doing(enters, then == enters))
    first = switches[~switches["thread"].duplicated()]
    opposite = 1 - first["enters"].to_numpy()
    before = first.assign(start=BEFORE, end=first["start"], doing=_doing(opposite, np.full(len(first), False)))
    # The state of a stretch that began before the trace is not in it.
    before = before.assign(state=UNKNOWN)
    found = pd.concat([before, after], ignore_index=True)
    found["cpu"] = found["cpu"].where(found["doing"] == RUNNING, UNKNOWN)
    found["state"] = found["state"].where(found["doing"] == OFF, UNKNOWN)
    columns = ["thread", "start", "end", "doing", "cpu", "state"]
    return found.sort_values(["thread", "start"], kind="stable", ignore_index=True)[columns]


def _doing(enters: np.ndarray, lost: np.ndarray) -> np.ndarray:
    return np.where(lost, LOST, np.where(enters == 1, RUNNING, OFF))


def cut_states(events: pd.DataFrame, begin: int, end: int) -> pd.DataFrame:
    """Return the parts of events within a span of ns, with their length as `ns`; events: with `start` and `end`."""
    inside = events[(events["start"] < end) & (events["end"] > begin)]
    starts, ends = inside["start"].clip(lower=begin), inside["end"].clip(upper=end)
    return inside.assign(ns=ends - starts)


def calls_at(calls: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the name of the call that each thread was in at a time in ns; empty for none.

    calls: `thread`, `start`, `end` and `name`, none within another of its thread. threads, times: shape (moments,).

    >>> calls = pd.DataFrame({"thread": [1, 1, 2], "start": [10, 30, 0], "end": [20, 40, 90]})
    >>> calls = calls.assign(name=["read", "poll", "x"])
    >>> calls_at(calls, np.array([1, 1, 1, 2]), np.array([15, 20, 39, 89])).tolist()
    ['read', '', 'poll', 'x']
    """
    found = np.full(len(times), "", dtype=object)
    for thread, own in calls.groupby("thread"):
        mine = np.flatnonzero(threads == thread)
        at = intervals.find_open(times[mine], own["start"].to_numpy(), own["end"].to_numpy())
        found[mine] = np.append(own["name"].to_numpy(dtype=object), "")[at]
    return found
