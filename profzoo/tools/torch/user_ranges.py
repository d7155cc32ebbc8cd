"""Finds the ranges that a program opened itself with record_function in a trace, and the launches made in them."""

import re

import numpy as np
import pandas as pd

from profzoo.io.columns import AMOUNT, CPU, TEXT, Column
from profzoo.io.csv_tables import Table
from profzoo.range_names import DOMAIN, STEP, make_torch_name
from profzoo.tools import user_ranges
from profzoo.tools.torch import TOOL as TOOL
from profzoo.tools.torch.nesting import MARK, classify_operators
from profzoo.tools.torch.trace import Trace, launch_times, launching_calls
from profzoo.tools.user_ranges import NODES, UserRanges

# In the table of launches, there only where the program has such ranges.
COLUMN = "user_range"
# What torch opens by record_function in every program that uses the feature.
OTHERS = re.compile(
    rf"{DOMAIN}:.*|ProfilerStep.*|Optimizer\.\w+#.*|enumerate\(DataLoader\)#.*|DistributedDataParallel\.\w+"
    r"|(Fully|FSDP|torch\.distributed).*::.*|FullyShardedDataParallel\.\w+|(nccl|gloo|mpi|ucc|c10d):+.*"
    r"|Torch-Compiled Region.*|## Call CompiledF.*|CompiledFunction.*|TorchDynamo Cache Lookup|Pregraph bytecode.*"
    r"|AOTDispatcher Runtime Wrapper.*|Inductor.*|PyTorch Profiler.*|Iteration Start: PyTorch Profiler"
)
TABLE = Table(
    columns={
        "range": Column(
            TEXT, "Range of the program's own, behind the names of those around it, joined by ` > `; or `(step)`.",
            tool="torch"),
        "parent": Column(TEXT, "Range around this one; empty for an outermost one.", tool="torch"),
        "calls": Column(AMOUNT, "How often the range was opened, in all traced steps.", "count", "torch"),
        "cpu_ns": Column(AMOUNT, "Host time for which the range was open, in all traced steps.", "ns", "torch", CPU),
    },
    key=["range", "parent"],
)  # fmt: skip


def find_user_ranges(trace: Trace) -> UserRanges | None:
    """Return the program's own ranges that were open in the trace's steps; None without such ranges or steps."""
    own = np.array([not OTHERS.fullmatch(text) for text in trace.texts] + [False])
    chosen = np.flatnonzero(own[trace.ranges["name"]])
    step = np.flatnonzero(np.array(trace.texts, dtype=object)[trace.ranges["name"]] == make_torch_name(STEP))
    if not len(chosen) or not len(step):
        return None
    names = pd.Series([trace.texts[code] for code in trace.ranges["name"][chosen]], dtype="object")
    ranges = pd.DataFrame({"name": names, **_spans(trace, chosen), "process": 0, "shared": False})
    found = user_ranges.nest_ranges(ranges, pd.DataFrame({**_spans(trace, step), "process": 0}))
    return found if len(found.ranges) else None


def add_user_ranges(launches: pd.DataFrame, trace: Trace, found: UserRanges, gpu: bool) -> pd.DataFrame:
    """Return the table of launches with COLUMN, the path of the range in which each was made; empty outside of all.

    launches: of owners.tabulate_launches, or on a CPU of owners.tabulate_operators.
    """
    if gpu:
        called, calls = launch_times(trace), launching_calls(trace)
        order = np.lexsort((trace.launches["start"], called))
        moments, threads = called[order], np.append(trace.calls["thread"], -1)[calls[order]]
    else:
        operators = np.flatnonzero(classify_operators(trace) != MARK)
        order = operators[np.argsort(trace.operators["start"][operators], kind="stable")]
        moments, threads = trace.operators["start"][order], trace.operators["thread"][order]
    paths = found.find_paths(moments, np.zeros(len(moments), dtype=np.int64), threads.astype(np.int64))
    return launches.assign(**{COLUMN: paths})


def tabulate_user_ranges(found: UserRanges | None) -> pd.DataFrame:
    """Return one row per path, summed over all steps; none without ranges."""
    return TABLE.empty() if found is None else found.tabulate_paths()[list(NODES)]


def _spans(trace: Trace, chosen: np.ndarray) -> dict[str, np.ndarray]:
    start = trace.ranges["start"][chosen]
    return {
        "start": start,
        "end": start + trace.ranges["ns"][chosen],
        "thread": trace.ranges["thread"][chosen].astype(np.int64),
    }
