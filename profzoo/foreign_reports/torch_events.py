"""Reads the events of a foreign torch.profiler trace into columns, whatever version of torch wrote it."""

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.io import chrome_trace
from profzoo.tools.user_ranges import is_over

# Names of events in traces of torch 1.8 to 2.11, of CUDA and HIP, by the category that profzoo reads them as.

OPERATOR, RANGE, RUNTIME, DRIVER = "cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"
KERNEL, COPY, SET, LINK = "kernel", "gpu_memcpy", "gpu_memset", "fwdbwd"
ON_DEVICE, CALLS = (KERNEL, COPY, SET), (RUNTIME, DRIVER)
# In small letters, with `_` for a blank: torch up to 1.11 wrote `Operator`, `Kernel`, `Memcpy` and so on.
CATEGORIES: Mapping[str, str] = {
    **{name: name for name in (OPERATOR, RANGE, RUNTIME, DRIVER, KERNEL, COPY, SET, LINK)},
    "operator": OPERATOR,
    "cpu_operator": OPERATOR,
    "runtime": RUNTIME,
    "hip_runtime": RUNTIME,
    "cuda_driver": DRIVER,
    "hip_driver": DRIVER,
    "concurrent_kernel": KERNEL,
    "memcpy": COPY,
    "memset": SET,
    "forward_backward": LINK,
}
# The profiler of torch before 1.8.1 wrote no categories: the process says what an event is.
OF_PROCESSES = {"cpu functions": OPERATOR, "cuda functions": KERNEL}
# What torch itself marks by ranges, which were operators of the trace in torch 1.x.
MARKS = ("ProfilerStep#", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#",
         "DistributedDataParallel.forward", "FullyShardedDataParallel.forward")  # fmt: skip
# Devices whose work has categories of its own that are not read.
OTHER_DEVICES = {"mtia": "MTIA", "xpu": "XPU", "hpu": "HPU", "privateuse1": "another device", "npu": "NPU"}


def category_of(event: Mapping[str, Any]) -> str:
    """Return the category that profzoo reads an event as; empty for events that it does not read.

    >>> category_of({"ph": "X", "cat": "Kernel"}), category_of({"ph": "X", "cat": "python_function"})
    ('kernel', '')
    >>> category_of({"ph": "X", "cat": "Operator", "name": "ProfilerStep#3"})
    'user_annotation'
    """
    given, phase = event.get("cat"), event.get("ph")
    if given is None:
        found = OF_PROCESSES.get(str(event.get("pid")).lower(), "")
    else:
        found = CATEGORIES.get(str(given).lower().replace(" ", "_"), "")
    if (found == LINK) != (phase in ("s", "f")) or phase not in ("X", "s", "f"):
        return ""
    return RANGE if found == OPERATOR and str(event.get("name")).startswith(MARKS) else found


def other_device(category: object) -> str:
    """Return the device whose work a category is about and that profzoo does not read; empty for other categories.

    >>> other_device("mtia_ccp_events"), other_device("kernel")
    ('MTIA', '')
    """
    first = str(category).lower().partition("_")[0]
    return OTHER_DEVICES.get(first, "")


OTHER_EXPORT = "export it again with `prof.export_chrome_trace`"
# Phases of an event's begin and end, where these are two events.
HALVES = ("B", "E")
# What made events that are not torch.profiler's, and how its calls are named on the host.
JAX, JAX_CALLS = "JAX", ("PjitFunction", "PjRt", "XlaModule")
# Times in ns beyond which floats cannot hold them any more; so large ones are told from the first event on.
EXACT_NS = 1 << 53
COLUMNS = ("index", "category", "name", "start", "ns", "process", "thread", "correlation", "external", "device",
           "stream", "context", "shapes")  # fmt: skip
NUMBERS = ("index", "start", "ns", "correlation", "external")


@dataclass(frozen=True)
class ForeignTrace:
    """The events of a trace that profzoo reads, and what surrounds them.

    events: columns COLUMNS, a row per event; `index` is its place in the file, `start` and `ns` are in ns, `process`
    and `thread` are texts as the trace has them, `shapes` are those of an operator's inputs, `correlation` and
    `external` are -1 where an event has none.
    others: what the trace holds besides its events. unread: events by categories that are not read. base_ns: what was
    taken off all times. notes: lines about events that are left out.
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
        DataError: the file is not a trace of torch.profiler, is damaged, or holds nothing that profzoo reads.
    """
    rows, unread = list[tuple[Any, ...]](), Counter[str]()
    odd, untimed = 0, Counter[str]()

    def take(index: int, event: Any) -> None:
        nonlocal odd
        if not isinstance(event, dict):
            odd += 1
        elif category := category_of(event):
            row = _row(index, category, event)
            if category in ON_DEVICE and (why := _impossible(event)):
                untimed[why] += 1
                return
            odd += row is None
            rows.extend([row] if row else [])
        elif event.get("ph") in HALVES and category_of({**event, "ph": "X"}):
            raise DataError(
                f"{path} holds events in two halves (ph {' and '.join(HALVES)}), which torch.profiler does not write: "
                "import the trace as it was before another program changed it"
            )
        elif event.get("ph") == "X":
            unread[_unread_kind(event)] += 1

    others = scan_events(path, take)
    if device := next(filter(None, map(other_device, unread)), ""):
        raise DataError(
            f"{path} holds work of {device}, which profzoo does not read: take a trace of a CPU or of a CUDA or HIP GPU"
        )
    events = pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(NUMBERS, "int64"))
    if not (events["category"] != LINK).any():
        raise DataError(f"{path} {_nothing(others, unread)}")
    base = int(events["start"].min()) if events["start"].abs().max() > EXACT_NS else 0
    events["start"] -= base
    notes = [f"{odd} events without a name or a time are left out"] if odd else []
    notes += [f"{count:,} launches are left out, as each {why}, which cannot be" for why, count in untimed.items()]
    return ForeignTrace(events, others, unread, base, notes)


def scan_events(path: str | Path, take: Callable[[int, Any], object]) -> Mapping[str, Any]:
    """Hand each event of a trace to a function, with its place in the file; return what surrounds the events.

    Raises:
        DataError: the file is not a trace, or damaged.
    """
    try:
        with chrome_trace.open_trace(path) as file:
            found = chrome_trace.Events(file)
            for index, event in enumerate(found):
                take(index, event)
            return found.others
    except DataError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error, chrome_trace.CutOffError) as error:
        raise DataError(f"{path} is cut off or damaged ({error}): copy it again, or {OTHER_EXPORT}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = "it has no list of events (traceEvents)" if isinstance(error, KeyError | TypeError) else error
        raise DataError(f"{path} is not a trace of torch.profiler: {why}: {OTHER_EXPORT}") from error


def _row(index: int, category: str, event: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return a row of COLUMNS; None for an event that lacks its name or has no time."""
    name, given = event.get("name"), event.get("args")
    start, ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0))
    if not isinstance(name, str) or start is None or ns is None or ns < 0:
        return None
    arguments = given if isinstance(given, dict) else {}
    external = arguments.get("External id", arguments.get("external id"))
    numbers = _identifier(arguments.get("correlation")), _identifier(external)
    queue = (str(arguments.get(key, "")) for key in ("device", "stream", "context"))
    shapes = arguments.get("Input Dims", arguments.get("Input dims")) if category == OPERATOR else None
    place = str(event.get("pid")), str(event.get("tid"))
    return index, category, name, start, ns, *place, *numbers, *queue, format_shapes(shapes)


def _impossible(event: Mapping[str, Any]) -> str:
    """Return why the times of a launch cannot be, by themselves; empty where they can.

    CUPTI leaves times at 0 that it does not know.
    """
    start, ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0))
    if start is None or ns is None:
        return "has no time"
    return "ends before it begins" if ns < 0 else "begins and ends at 0" if start == ns == 0 else ""


def format_shapes(dims: object) -> str:
    """Format the shapes of an operator's inputs as torch.profiler's table has them, without those of lists of tensors.

    >>> format_shapes([[2, 3], [[4], [5]], []]), format_shapes(None)
    ('[[2, 3], [], []]', '')
    """
    if not isinstance(dims, list):
        return ""
    return str([[] if isinstance(one, list) and any(isinstance(size, list) for size in one) else one for one in dims])


def nanoseconds(microseconds: object) -> int | None:
    """Convert a time of a trace, exactly for whole microseconds and to the ns for others; None for what is not a time.

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


def _unread_kind(event: Mapping[str, Any]) -> str:
    """Return what an event that is not read is, by its category; traces of JAX have none."""
    arguments = event.get("args")
    of_xla = isinstance(arguments, dict) and {"hlo_op", "hlo_module"} & set(arguments)
    if of_xla or str(event.get("name")).startswith(JAX_CALLS):
        return JAX
    return str(event["cat"]) if event.get("cat") is not None else "no category"


def _nothing(others: Mapping[str, Any], unread: Mapping[str, int]) -> str:
    """Explain what a trace holds instead of operators and kernels."""
    if device := next(filter(None, map(other_device, unread)), ""):
        return (
            f"holds work of {device} only, which profzoo does not read: import a trace of a CPU or of CUDA or HIP GPUs"
        )
    if JAX in unread:
        return f"is a trace of {JAX}, which profzoo does not read: run the program under nsys, and import that report"
    if unread:
        held = ", ".join(f"{count} of {name}" for name, count in Counter(unread).most_common(3))
        return f"holds no operator and no kernel of torch.profiler, only events of other kinds ({held}): {OTHER_EXPORT}"
    more = f" but {', '.join(list(others)[:3])}" if others else ""
    return f"holds no event that lasts{more}: {OTHER_EXPORT}"


def text_of(event: Mapping[str, Any]) -> str:
    """Write an event as one line of JSON, with null for numbers that JSON does not have.

    >>> text_of({"name": "mm", "args": {"warps per SM": float("inf"), "grid": [1, 1, 1]}})
    '{"name":"mm","args":{"warps per SM":null,"grid":[1,1,1]}}'
    """
    try:
        return json.dumps(event, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(event), separators=(",", ":"))


def _finite(value: Any) -> Any:
    """Return a value of JSON with None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Finds what encloses each event of the host, and each launching call, by thread and time.
#
# Numbers that a trace has for this are not used: in 2022 and 2023 the `External id` of launches was their correlation.


def sort_events(events: pd.DataFrame) -> pd.DataFrame:
    """Return events by thread and start, each behind the events that enclose it.

    Of events that begin and end at once, such as in traces of whole microseconds, the one that was made first comes
    first: by its number, then by its place in the file.
    """
    order = ["process", "thread", "start", "ns", "external", "index"]
    return events.sort_values(order, ascending=[True, True, True, False, True, True], ignore_index=True)


def find_parents(events: pd.DataFrame) -> np.ndarray:
    """Return, per event, the position of the innermost event that encloses it on its thread; -1 for none.

    One that ends behind another's beginning by no more than clocks are rounded is over by then.

    events: as `sort_events` returns them.

    >>> rows = pd.DataFrame({"start": [0, 10, 12, 60], "ns": [50, 20, 5, 10], "process": "1", "thread": "1"})
    >>> find_parents(rows).tolist()
    [-1, 0, 1, -1]
    >>> find_parents(rows.assign(start=[0, 10, 29, 60], ns=[50, 20, 15, 10])).tolist()
    [-1, 0, 0, -1]
    """
    end, threads = (events["start"] + events["ns"]).tolist(), _threads(events)
    parents = np.full(len(events), -1, dtype=np.int64)
    stack: list[int] = []
    for place, (began, thread) in enumerate(zip(events["start"].tolist(), threads.tolist(), strict=True)):
        while stack and (is_over(began, end[place], end[stack[-1]]) or threads[stack[-1]] != thread):
            stack.pop()
        parents[place] = stack[-1] if stack else -1
        stack.append(place)
    return parents


def enclosing_events(events: pd.DataFrame, parents: np.ndarray, moments: pd.DataFrame) -> np.ndarray:
    """Return, per moment, the position of the innermost event that was open on its thread; -1 for none.

    An event is open at its end as well where nothing else is, as times may be cut off to whole microseconds.

    Args:
        events, parents: as of `sort_events` and `find_parents`.
        moments: columns process, thread and start.
    """
    found = np.full(len(moments), -1, dtype=np.int64)
    end = np.append((events["start"] + events["ns"]).to_numpy(), 0)
    places = events.groupby(["process", "thread"]).indices
    for thread, asked in moments.groupby(["process", "thread"]).indices.items():
        own = places.get(thread)
        if own is None:
            continue
        times = moments["start"].to_numpy()[asked]
        last = np.searchsorted(events["start"].to_numpy()[own], times, side="right") - 1
        at = np.where(last >= 0, own[last], -1)
        inside = _climb(at, parents, times, end, open_at_end=False)
        found[asked] = np.where(inside >= 0, inside, _climb(at, parents, times, end, open_at_end=True))
    return found


def _climb(at: np.ndarray, parents: np.ndarray, times: np.ndarray, end: np.ndarray, open_at_end: bool) -> np.ndarray:
    """Follow parents until an event is open at the time."""
    at = at.copy()
    while True:
        over = (at >= 0) & ((end[at] < times) if open_at_end else (end[at] <= times))
        if not over.any():
            return at
        at[over] = parents[at[over]]


def _threads(events: pd.DataFrame) -> np.ndarray:
    return events.groupby(["process", "thread"], sort=False).ngroup().to_numpy()
