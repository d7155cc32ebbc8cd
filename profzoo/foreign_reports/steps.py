"""Finds the steps of a foreign trace: by the ranges that it has, by repetition of its launches, or the whole of it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.foreign_reports.repetition import find_repetition
from profzoo.foreign_reports.torch_categories import KERNEL
from profzoo.range_names import STEP, WINDOW, make_nvtx_name, make_torch_name

PROFILER_STEP = re.compile(r"ProfilerStep#?\d*\*?")
OWN = (make_torch_name(STEP), make_nvtx_name(STEP))
# Words of users' own ranges for a step, as whole words.
WORDS = re.compile(r"(?:^|[^a-z])(?:step|iteration|iter|batch)(?:[^a-z]|$)")
DIGITS = re.compile(r"\d+")
# A boundary of torch's own, where steps meet: at the beginning of a forward pass or of the next batch, at the end of an
# optimizer's step.
FORWARD = ("DistributedDataParallel.forward", "FullyShardedDataParallel.forward")
OPTIMIZER, LOADER = "Optimizer.step#", "enumerate(DataLoader)#"
WHOLE = "the whole trace"


@dataclass(frozen=True)
class Steps:
    """Steps of a trace, in order, without overlap.

    spans: start and end of each in ns, shape (steps, 2). found_by: what they are taken from, in words. whole: whether
    the whole trace is one step, as nothing tells steps apart. own: whether profzoo itself marked them.
    """

    spans: np.ndarray
    found_by: str
    whole: bool = False
    own: bool = False


def find_steps(
    ranges: pd.DataFrame, launches: pd.DataFrame, span: tuple[int, int], work: np.ndarray, asked: str | None = None
) -> Steps:
    """Find the steps.

    Args:
        ranges: what the program marked: name, start, ns, process, thread.
        launches: name and category of each launch and `made`, when it was launched, in the order of the launches.
        span: when the trace begins and ends, in ns. work: when its work was launched, or on a CPU began: steps hold
            some of it, but for some between others. A profiler that stops opens one more step, in which nothing runs.
        asked: name of the ranges that the user calls steps; several with numbers in their names count as one name.

    Raises:
        LookupError: no range has the asked name; the message names ranges that there are.
    """
    if asked:
        found = _working(_outermost(ranges[ranges["name"].map(lambda name: _same(name, asked))]), work)
        if not len(found):
            raise LookupError(_known(ranges))
        return Steps(found, f"the ranges {asked}")
    for steps in _candidates(ranges, span):
        spans = steps.spans if steps.own else _working(steps.spans, work)
        if len(spans):
            return replace(steps, spans=spans)
    for sequence in (launches, launches[launches["category"] == KERNEL]):
        # Copies may come and go, such as of a loss that is printed now and then.
        edges = find_repetition(sequence["name"].to_numpy())
        if not len(edges):
            continue
        times = np.append(sequence["made"].to_numpy(dtype=np.int64), span[1])[edges]
        repeated = f"repetition: the same {edges[1] - edges[0]} launches over and over"
        return Steps(np.column_stack([times[:-1], times[1:]]), repeated)
    return Steps(np.array([span], dtype=np.int64), WHOLE, whole=True)


def _candidates(ranges: pd.DataFrame, span: tuple[int, int]) -> Iterator[Steps]:
    """Yield steps by each kind of range, the surest first."""
    names = ranges["name"]
    yield Steps(_outermost(ranges[names.isin(OWN)]), "profzoo's own ranges", own=True)
    yield Steps(_outermost(ranges[names.map(lambda name: bool(PROFILER_STEP.fullmatch(name)))]), "ProfilerStep")
    own = ranges[names.map(_is_step)]
    if len(own):
        alike = own["name"].map(_plain)
        most = alike.value_counts().index[0]
        yield Steps(_outermost(own[alike == most]), f"the ranges {own.loc[alike == most, 'name'].iloc[0]}")
    for name in FORWARD:
        yield Steps(_between(ranges[names == name], "start", span), f"{name}: from one call to the next")
    yield Steps(_behind(_of_one_name(ranges, OPTIMIZER), span), "Optimizer.step: from the end of one to the next")
    loaded = _between(_of_one_name(ranges, LOADER), "start", span)
    # The last batch of an epoch is followed by a call that finds none.
    yield Steps(loaded, "enumerate(DataLoader): from one batch to the next")


def _working(spans: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Return the spans without the first and last ones in which nothing was launched.

    >>> _working(np.array([[0, 10], [10, 20], [20, 21]]), np.array([4, 12])).tolist()
    [[0, 10], [10, 20]]
    """
    times = np.sort(work)
    held = np.searchsorted(times, spans[:, 1]) > np.searchsorted(times, spans[:, 0])
    places = np.flatnonzero(held)
    return spans[places[0] : places[-1] + 1] if len(places) else spans[:0]


def _outermost(ranges: pd.DataFrame) -> np.ndarray:
    """Return spans of ranges of the thread that has most, without those inside or across others."""
    if ranges.empty:
        return np.zeros((0, 2), dtype=np.int64)
    sizes = ranges.groupby(["process", "thread"], sort=False).size()
    process, thread = sizes.index[int(sizes.to_numpy().argmax())]
    own = ranges[(ranges["process"] == process) & (ranges["thread"] == thread)]
    own = own.sort_values(["start", "ns"], ascending=[True, False])
    kept, reached = [], -(1 << 62)
    for start, ns in zip(own["start"].tolist(), own["ns"].tolist(), strict=True):
        if start >= reached and ns > 0:
            kept.append((start, start + ns))
            reached = start + ns
    return np.array(kept, dtype=np.int64).reshape(-1, 2)


def _between(ranges: pd.DataFrame, column: str, span: tuple[int, int]) -> np.ndarray:
    """Return spans from each range's start to the next one's, the last to the end of the trace."""
    found = _outermost(ranges)
    return np.column_stack([found[:, 0], np.append(found[1:, 0], span[1])]) if len(found) > 1 else found[:0]


def _behind(ranges: pd.DataFrame, span: tuple[int, int]) -> np.ndarray:
    """Return spans from each range's end to the next one's; what is before the first end may be no whole step."""
    found = _outermost(ranges)
    return np.column_stack([found[:-1, 1], found[1:, 1]]) if len(found) > 1 else found[:0]


def _of_one_name(ranges: pd.DataFrame, beginning: str) -> pd.DataFrame:
    """Return the ranges of the first of the most frequent names that begin so."""
    own = ranges[ranges["name"].str.startswith(beginning)]
    return own[own["name"] == own["name"].value_counts(sort=True).index[0]] if len(own) else own


def _is_step(name: str) -> bool:
    """Whether a user's range is called after a step, and is none of torch's own."""
    return bool(WORDS.search(name.lower())) and not name.startswith(("Optimizer.", "enumerate(", "profzoo"))


def _plain(name: str) -> str:
    """Return a name without numbers.

    >>> _plain("iteration 12"), _plain("step[DECODE bs=32]")
    ('iteration #', 'step[DECODE bs=#]')
    """
    return DIGITS.sub("#", name)


def _same(name: str, asked: str) -> bool:
    return name == asked or _plain(name) in (_plain(asked), f"{asked}#", f"{asked} #")


def _known(ranges: pd.DataFrame) -> str:
    names = ranges["name"].map(_plain)
    counted = names[~names.str.startswith(WINDOW)].value_counts()
    shown = ", ".join(f"{name} ({count})" for name, count in counted.head(5).items())
    return f"it has {shown}" if shown else "it has no ranges at all"
