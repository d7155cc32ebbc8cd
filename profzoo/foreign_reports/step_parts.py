"""Finds the parts of the step in a foreign trace: data, transfer, forward, loss, backward, optimizer."""

import re
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from profzoo.foreign_reports.steps import FORWARD, LOADER, OPTIMIZER
from profzoo.range_names import PARTS, make_nvtx_name, make_torch_name

COLUMNS = ["name", "start", "end", "found_by"]
# Names that users give to ranges of parts, without anything but letters.
NAMES = {part: part for part in PARTS} | {
    "fwd": "forward", "forwardpass": "forward", "bwd": "backward", "backwardpass": "backward", "optim": "optimizer",
    "optimizerstep": "optimizer", "optstep": "optimizer", "dataloading": "data", "dataloader": "data",
    "loaddata": "data", "computeloss": "loss", "criterion": "loss", "h2d": "transfer", "datatransfer": "transfer",
}  # fmt: skip
LETTERS = re.compile(r"[^a-z0-9]")
# What autograd's engine calls its nodes.
ENGINE = "autograd::engine::evaluate_function: "


def find_parts(ranges: pd.DataFrame, operators: pd.DataFrame, steps: np.ndarray) -> pd.DataFrame:
    """Return the parts that the trace tells, without overlap, by start: columns COLUMNS.

    They are the program's own ranges of these names, then what torch itself marks, then the time from autograd's first
    node to its last in each step. Time in none of them has no part.

    Args:
        ranges, operators: name, start and ns of each. steps: spans of the steps in ns, shape (steps, 2).
    """
    kept = pd.DataFrame(columns=COLUMNS)
    for found in _candidates(ranges, operators, steps):
        inside = found[_are_free(found, kept)]
        if len(inside):
            kept = pd.concat([kept, inside], ignore_index=True) if len(kept) else inside
    return kept.sort_values(["start", "end"], ignore_index=True)


def _candidates(ranges: pd.DataFrame, operators: pd.DataFrame, steps: np.ndarray) -> Iterator[pd.DataFrame]:
    own = {make(part): part for part in PARTS for make in (make_torch_name, make_nvtx_name)}
    yield _named(ranges, lambda name: own.get(name, ""), "profzoo's own ranges")
    yield _named(ranges, lambda name: NAMES.get(LETTERS.sub("", name.lower()), ""), "the program's own ranges")
    yield _named(ranges, _of_torch, "ranges of torch")
    yield _backward(operators, steps)


def _of_torch(name: str) -> str:
    """Return the part that a range of torch's own is.

    >>> _of_torch("Optimizer.step#AdamW.step"), _of_torch("aten::add")
    ('optimizer', '')
    """
    if name.startswith(LOADER):
        return "data"
    if name in FORWARD:
        return "forward"
    return "optimizer" if name.startswith((OPTIMIZER, "Optimizer.zero_grad#")) else ""


def _named(ranges: pd.DataFrame, part_of: Callable[[str], str], found_by: str) -> pd.DataFrame:
    parts = ranges["name"].map(part_of)
    own = ranges[parts.astype("str") != ""]
    table = pd.DataFrame({"name": parts[own.index], "start": own["start"], "end": own["start"] + own["ns"]})
    table = table.sort_values(["start", "end"], ascending=[True, False], ignore_index=True)
    # Of ranges in one another, the outer one.
    reached = table["end"].cummax().shift(fill_value=-(1 << 62))
    return table[table["start"] >= reached].assign(found_by=found_by)[COLUMNS]


def _backward(operators: pd.DataFrame, steps: np.ndarray) -> pd.DataFrame:
    """Return, per step, the time from the first to the last node of autograd."""
    nodes = operators[operators["name"].str.startswith(ENGINE)]
    start, end = nodes["start"].to_numpy(dtype=np.int64), (nodes["start"] + nodes["ns"]).to_numpy(dtype=np.int64)
    rows = []
    for begin, over in steps.tolist():
        inside = (start >= begin) & (start < over)
        if inside.any():
            rows.append(("backward", int(start[inside].min()), int(end[inside].max()), "nodes of autograd"))
    return pd.DataFrame(rows, columns=COLUMNS)


def _are_free(found: pd.DataFrame, kept: pd.DataFrame) -> np.ndarray:
    """Return, per span, whether it overlaps none of those that are known."""
    if kept.empty:
        return np.ones(len(found), dtype=bool)
    known = kept.sort_values("start")
    starts, ends = (np.append(known[name].to_numpy(dtype=np.int64), 1 << 62) for name in ("start", "end"))
    # The first of the known ones that is not over yet.
    at = np.searchsorted(ends, found["start"].to_numpy(dtype=np.int64), side="right")
    return np.asarray(starts[at] >= found["end"].to_numpy(dtype=np.int64))
