"""Reads the events of a foreign torch.profiler trace into columns, whatever version of torch wrote it."""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo.errors import DataError
from profzoo.foreign_reports import torch_categories as categories
from profzoo.io import chrome_trace

OTHER_EXPORT = "export it again with `prof.export_chrome_trace`"
# Times in ns beyond which floats cannot hold them any more; so large ones are told from the first event on.
EXACT_NS = 1 << 53
COLUMNS = ("index", "category", "name", "start", "ns", "process", "thread", "correlation", "external", "device",
           "stream", "shapes")  # fmt: skip
NUMBERS = ("index", "start", "ns", "correlation", "external")


@dataclass(frozen=True)
class ForeignTrace:
    """The events of a trace that profzoo reads, and what surrounds them.

    events: columns COLUMNS, a row per event; `index` is its place in the file, `start` and `ns` are in ns, `process`
    and `thread` are texts as the trace has them, `shapes` are those of an operator's inputs, `correlation` and
    `external` are -1 where an event has none.
    others: what the trace holds besides its events. unread: events by categories that are not read. base_ns: what was
    taken off all times.
    """

    events: pd.DataFrame
    others: Mapping[str, Any]
    unread: Mapping[str, int]
    base_ns: int = 0
    notes: list[str] = field(default_factory=list)

    def of(self, *chosen: str) -> pd.DataFrame:
        """Return the events of these categories."""
        return self.events[self.events["category"].isin(chosen)]


def read_foreign_trace(path: str | Path) -> ForeignTrace:
    """Read a trace.

    Raises:
        DataError: the file is no trace of torch.profiler, is damaged, or holds nothing that profzoo reads.
    """
    rows, unread = list[tuple[Any, ...]](), Counter[str]()
    odd = 0

    def take(index: int, event: Any) -> None:
        nonlocal odd
        if not isinstance(event, dict):
            odd += 1
        elif category := categories.category_of(event):
            row = _row(index, category, event)
            odd += row is None
            rows.extend([row] if row else [])
        elif event.get("ph") == "X":
            unread[str(event.get("cat"))] += 1

    others = scan_events(path, take)
    if device := next(filter(None, map(categories.other_device, unread)), ""):
        raise DataError(
            f"{path} holds work of {device}, which profzoo does not read: take a trace of a CPU or of a CUDA or HIP GPU"
        )
    events = pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(NUMBERS, "int64"))
    if not (events["category"] != categories.LINK).any():
        raise DataError(f"{path} {_nothing(others, unread)}")
    base = int(events["start"].min()) if events["start"].abs().max() > EXACT_NS else 0
    events["start"] -= base
    notes = [f"{odd} events without a name or a time are left out"] if odd else []
    return ForeignTrace(events, others, unread, base, notes)


def scan_events(path: str | Path, take: Callable[[int, Any], object]) -> Mapping[str, Any]:
    """Hand each event of a trace to a function, with its place in the file; return what surrounds the events.

    Raises:
        DataError: the file is no trace, or damaged.
    """
    try:
        with chrome_trace.open_trace(path) as file:
            found = chrome_trace.Events(file)
            for index, event in enumerate(found):
                take(index, event)
            return found.others
    except (gzip.BadGzipFile, EOFError, zlib.error, chrome_trace.CutOffError) as error:
        raise DataError(f"{path} is cut off or damaged ({error}): copy it again, or {OTHER_EXPORT}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = "it has no list of events (traceEvents)" if isinstance(error, KeyError | TypeError) else error
        raise DataError(f"{path} is no trace of torch.profiler: {why}: {OTHER_EXPORT}") from error


def _row(index: int, category: str, event: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return a row of COLUMNS; None for an event that lacks its name or has no time."""
    name, given = event.get("name"), event.get("args")
    start, ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0))
    if not isinstance(name, str) or start is None or ns is None or ns < 0:
        return None
    arguments = given if isinstance(given, dict) else {}
    external = arguments.get("External id", arguments.get("external id"))
    numbers = _identifier(arguments.get("correlation")), _identifier(external)
    queue = (str(arguments.get(key, "")) for key in ("device", "stream"))
    shapes = arguments.get("Input Dims", arguments.get("Input dims")) if category == categories.OPERATOR else None
    place = str(event.get("pid")), str(event.get("tid"))
    return index, category, name, start, ns, *place, *numbers, *queue, format_shapes(shapes)


def format_shapes(dims: object) -> str:
    """Format the shapes of an operator's inputs as torch.profiler's table has them, without those of lists of tensors.

    >>> format_shapes([[2, 3], [[4], [5]], []]), format_shapes(None)
    ('[[2, 3], [], []]', '')
    """
    if not isinstance(dims, list):
        return ""
    return str([[] if isinstance(one, list) and any(isinstance(size, list) for size in one) else one for one in dims])


def nanoseconds(microseconds: object) -> int | None:
    """Convert a time of a trace, exactly for whole microseconds and to the ns for others; None for what is no time.

    >>> nanoseconds(1694040009743542), nanoseconds(4374064379813.841), nanoseconds("12.5"), nanoseconds(None)
    (1694040009743542000, 4374064379813841, 12500, None)
    """
    if isinstance(microseconds, str):
        try:
            microseconds = float(microseconds)
        except ValueError:
            return None
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float):
        return None
    if not abs(microseconds) < 1 << 60:
        return None
    whole = int(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000)


def _identifier(value: object) -> int:
    """Convert a number that links events; -1 for none, which 0 means as well."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 62 else -1


def _nothing(others: Mapping[str, Any], unread: Mapping[str, int]) -> str:
    """Explain what a trace holds instead of operators and kernels."""
    if device := next(filter(None, map(categories.other_device, unread)), ""):
        return (
            f"holds work of {device} only, which profzoo does not read: import a trace of a CPU or of CUDA or HIP GPUs"
        )
    if unread:
        held = ", ".join(f"{count} of {name}" for name, count in Counter(unread).most_common(3))
        return f"holds no operator and no kernel of torch.profiler, only events of other kinds ({held}): {OTHER_EXPORT}"
    more = f" but {', '.join(list(others)[:3])}" if others else ""
    return f"holds no event that lasts{more}: {OTHER_EXPORT}"


def text_of(event: Mapping[str, Any]) -> str:
    """Write an event as one line of JSON."""
    return json.dumps(event, separators=(",", ":"))
