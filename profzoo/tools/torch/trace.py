"""Reads a torch.profiler trace into columns, event by event, so that a million launches fit into memory."""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from profzoo.errors import DataError
from profzoo.io import chrome_trace
from profzoo.json_types import JsonObject
from profzoo.op_costs.operators import FORMULAS
from profzoo.op_costs.tensor_effects import kind_of
from profzoo.range_names import COMPILED_KERNELS, LAUNCHING, SOURCES, STEP, make_torch_name
from profzoo.tools.nsys.events.intervals import find_open

# Reads the instants of a trace at which memory was taken or given back, which `torch.memory` records.

CATEGORY, NAME = "cpu_instant_event", "[memory]"
# What an instant tells: when, bytes taken (negative: given back), totals of the device's allocator after it, and where.
MEMORY_COLUMNS = ("start", "bytes", "allocated", "reserved", "device_type", "device", "address")
KEYS = ("Bytes", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "Addr")
# Columns that may need 64 bits.
WIDE_MEMORY = ("bytes", "allocated", "reserved", "address")


def read_event(event: JsonObject) -> tuple[int, ...] | None:
    """Return COLUMNS of an instant of memory; None for any other event, and for one that tells less.

    Times are in ns, sizes in bytes.

    >>> told = {"Bytes": -8, "Total Allocated": 0, "Total Reserved": 64, "Device Type": 1, "Device Id": 0, "Addr": 9}
    >>> read_event({"cat": CATEGORY, "name": NAME, "ts": 1.5, "args": told})
    (1500, -8, 0, 64, 1, 0, 9)
    """
    if event.get("cat") != CATEGORY or event.get("name") != NAME:
        return None
    start, told = event.get("ts"), event.get("args")
    if not isinstance(start, REAL) or not isinstance(told, dict):
        return None
    values = [value for key in KEYS if isinstance(value := told.get(key), int)]
    return (round(start * 1000), *values) if len(values) == len(KEYS) else None


DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
# The driver's names of kernels by which a graph copies and sets memory; nsys reports these as copies and memsets.
OF_MEMORY = re.compile(r"(memcpy|memset)\d+\w*")
CALLS = ("cuda_runtime", "cuda_driver")
READ = {*DEVICE_KINDS, *CALLS, "user_annotation", "cpu_op"}
AGAIN = "delete it, and the next run collects it again"
WRONG = "which cannot be"
# An undamaged file has the content that torch wrote, and so a new one would have it too.
ODD = "which is not read here, and would be in another trace as well: report it, with the version of torch"
# Limits of unsigned numbers, and of times in ns: more than a century, so that the sum of two times does not overflow.
BEYOND, LATEST = 2**53, 2**62
# Columns of a launch: numbers of blocks and threads, and bytes of shared memory per block.
SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "smem_bytes")
# Times in ns, IDs, and indices of texts and threads; -1 where an event has none.
COLUMNS = {
    "launches": ("start", "ns", "correlation", "external", "kind", "name", "stream", "queue", "gpu", "bytes", *SIZES),
    "calls": ("start", "ns", "correlation", "external", "name", "thread"),
    "ranges": ("start", "ns", "name", "thread"),
    "operators": ("start", "ns", "sequence", "external", "name", "shapes", "types", "inputs", "thread",
                  "forward_thread"),
    "links": ("start", "id", "thread", "forward"),
    "memory": (*MEMORY_COLUMNS, "thread"),
}  # fmt: skip
# Columns that may need 64 bits; the others are indices or small numbers.
WIDE = ("start", "ns", "correlation", "external", "sequence", "forward_thread", "id", *WIDE_MEMORY)
# Rows that become columns at a time: as numbers of Python's own they take ten times the memory. Of columns so many at
# once that the system has the memory back as soon as it is free; until they are filled they take none.
BLOCK, SLAB = 1 << 14, 1 << 23
# Types of numbers in JSON: a tuple, because a union is made anew for each event.
REAL = (int, float)
WIDTHS = (np.int8, np.int16, np.int32)
Columns = Mapping[str, np.ndarray]
# Of an operator, as the trace has them, by input.
INPUTS = ("Input Dims", "Input type", "Concrete Inputs")
STRIDES = "Input Strides"
# Shapes, types, values and strides; strides are empty in traces of torch before 2.4.
Inputs = tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]


class TimesError(DataError):
    """An event of the trace has impossible times."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The events of a trace by kind. Each kind is a mapping from column names to arrays with one value per event.

    Attributes:
        launches: kernels, copies and memsets. `kind` is an index of DEVICE_KINDS; `queue` numbers the streams of all
            contexts and devices; `gpu` and, of copies and memsets, `bytes` are -1 where the trace does not tell them.
        calls: calls of CUDA's runtime and driver.
        ranges: ranges that the program marked.
        operators: operators of torch and ranges of modules, by thread and start; each comes after the enclosing one.
        links: begin and end of links from operators to their backward operators.
        memory: instants at which memory was taken or given back, with its allocator's totals after them, if recorded.
        texts: texts to which names and shapes are indices.
        inputs: shapes, types, values and strides of the inputs of operators whose cost or effects are known.
        sources: file and lines of the `forward` of each class of modules, by its name, as `file:first-last`.
        compiled: what torch.compile made kernels of, by compiled graph, as harness/compiled_kernels.py wrote it.
    """

    texts: list[str]
    inputs: list[Inputs]
    launches: Columns
    calls: Columns
    ranges: Columns
    operators: Columns
    links: Columns
    memory: Columns
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    compiled: Mapping[str, Any] = field(default_factory=dict)


def read_trace(path: str | Path, say: Callable[[str], object] = print) -> Trace:
    """Read a Chrome trace, gzipped or plain; report how many events had to be repaired.

    Raises:
        DataError: the file is not a trace, is cut off, or an event lacks a required field.
        TimesError: an event has impossible times.
    """
    reader, number = _Reader(), -1
    try:
        with chrome_trace.open_trace(path) as file:
            events = chrome_trace.Events(file)
            for number, event in enumerate(events):
                if not reader.took(event):
                    raise DataError(f"{path}: event {number} is {json.dumps(event)[:80]}, {ODD}")
    except TimesError as error:
        raise TimesError(f"{path}: event {number} {error}: {AGAIN}") from None
    except (gzip.BadGzipFile, EOFError, zlib.error, chrome_trace.CutOffError) as error:
        raise DataError(f"{path} is damaged: {error}: {AGAIN}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: event {number + 1} is not JSON ({error.msg}), {ODD}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        why = f"it has no {error}" if isinstance(error, KeyError) else error
        raise DataError(f"{path} is not a trace of torch.profiler: {why}: {AGAIN}") from error
    if events.mended:
        say(f"{path}: torch.profiler left texts of {events.mended} events unescaped, which are read by its layout")
    compiled = events.others.get(COMPILED_KERNELS)
    return replace(
        reader.trace(),
        sources=_sources(events.others.get(SOURCES)),
        compiled=compiled if isinstance(compiled, dict) else {},
    )


def _sources(given: object) -> dict[str, list[str]]:
    """Return the lines by class that the metadata of a trace holds; what else it may hold is left out."""
    known = given.items() if isinstance(given, dict) else ()
    return {name: [line for line in lines if isinstance(line, str)] for name, lines in known if isinstance(lines, list)}


def make_trace(events: Iterable[Any]) -> Trace:
    """Make a trace from undamaged events."""
    reader = _Reader()
    for event in events:
        if not reader.took(event):
            raise DataError(f"an event is {json.dumps(event)[:80]}")
    return reader.trace()


class _Columns:
    """Collects rows of numbers as columns, whose final types are as narrow as the numbers allow."""

    def __init__(self, names: Sequence[str]) -> None:
        """names: of the columns."""
        self._names, self._rows, self._filled = names, list[tuple[int, ...]](), SLAB
        self._slabs: list[list[np.ndarray]] = [[] for _ in names]

    def add(self, row: tuple[int, ...]) -> None:
        """One more row."""
        self._rows.append(row)
        if len(self._rows) == BLOCK:
            self._pack()

    def _pack(self) -> None:
        whole = np.array(self._rows, dtype=np.int64).reshape(len(self._rows), len(self._names))
        if self._filled == SLAB:
            self._filled = 0
            for name, slabs in zip(self._names, self._slabs, strict=True):
                slabs.append(np.empty(SLAB, dtype=np.int64 if name in WIDE else np.int32))
        end = self._filled + len(whole)
        for column, slabs in zip(whole.T, self._slabs, strict=True):
            slabs[-1][self._filled : end] = column
        self._filled = end
        self._rows.clear()

    def take(self) -> dict[str, np.ndarray]:
        """The columns by name; there are none any more afterwards."""
        self._pack()
        return {name: self._narrow(name, slabs) for name, slabs in zip(self._names, self._slabs, strict=True)}

    def _narrow(self, name: str, slabs: list[np.ndarray]) -> np.ndarray:
        slabs[-1] = slabs[-1][: self._filled]
        low, high = (int(end([end(slab, initial=0) for slab in slabs])) for end in (np.min, np.max))
        # What others are added to is as wide as their sums.
        widths = () if name == "start" else WIDTHS
        width = next((one for one in widths if np.iinfo(one).min <= low and high <= np.iinfo(one).max), np.int64)
        found = np.concatenate([slab.astype(width) for slab in slabs])
        slabs.clear()
        return found


class _Reader:
    """Collects events, and sorts their fields into columns by kind of event."""

    def __init__(self) -> None:
        self._columns = {kind: _Columns(names) for kind, names in COLUMNS.items()}
        self._texts: dict[str, int] = {}
        # By their texts, as there are few kinds of them.
        self._inputs: dict[str, tuple[int, Inputs]] = {}
        self._threads: dict[Any, int] = {}
        self._queues: dict[Any, int] = {}

    def trace(self) -> Trace:
        """What was taken."""
        found = {kind: columns.take() for kind, columns in self._columns.items()}
        operators = found["operators"]
        order = np.lexsort((-operators["ns"].astype(np.int64), operators["start"], operators["thread"]))
        for name in operators:
            operators[name] = operators[name][order]
        inputs = [inputs for _, inputs in self._inputs.values()]
        return Trace(texts=list(self._texts), inputs=inputs, sources={}, compiled={}, **found)

    def took(self, event: Any) -> bool:
        """Whether an event is an object and, where it is read, has name, times and what it belongs to."""
        if not isinstance(event, dict):
            return False
        category = event.get("cat", "")
        if not isinstance(category, str) or category not in READ:
            if category == "fwdbwd":
                self._link(event)
            elif moved := read_event(event):
                self._columns["memory"].add((*moved, self._thread(event)))
            return isinstance(category, str)
        arguments, start, ns = event.get("args", {}), event.get("ts"), event.get("dur")
        if not (isinstance(arguments, dict) and _number(start, REAL) and _number(ns, REAL) and ns >= 0):
            return False
        if abs(start) + ns > LATEST / 1000:
            raise TimesError(f"lasts {ns / 1e6:,.0f} s from {start / 1e6:,.0f} s on, {WRONG}")
        correlation, external = arguments.get("correlation", -1), arguments.get("External id", -1)
        linked = _number(correlation, int) and _number(external, int)
        if not (linked and isinstance(event.get("name"), str) and ("args" in event or category not in DEVICE_KINDS)):
            return False
        times, name = (round(start * 1000), round(ns * 1000)), self._text(event["name"])
        if category == "cpu_op":
            return self._operator(times, external, name, self._thread(event), event["name"], arguments)
        if category == "user_annotation":
            self._columns["ranges"].add((*times, name, self._thread(event)))
        elif category in CALLS:
            self._columns["calls"].add((*times, correlation, external, name, self._thread(event)))
        else:
            copied = OF_MEMORY.fullmatch(event["name"]) if category == "kernel" else None
            kind = list(DEVICE_KINDS).index(f"gpu_{copied[1]}" if copied else category)
            shared, stream, gpu = (_small(arguments.get(key, -1)) for key in ("shared memory", "stream", "device"))
            sizes = *_three(arguments.get("grid")), *_three(arguments.get("block")), shared
            size = arguments.get("bytes")
            amount = size if _number(size, int) and size >= 0 else -1
            own = correlation, external, kind, name, stream, self._queue(arguments), gpu, amount
            self._columns["launches"].add((*times, *own, *sizes))
        return True

    def _operator(
        self, times: tuple[int, int], external: int, name: int, thread: int, called: str, arguments: JsonObject
    ) -> bool:
        sequence, forward = arguments.get("Sequence number", -1), arguments.get("Fwd thread id", 0)
        if not (_number(sequence, int) and _number(forward, int)):
            return False
        shapes = arguments.get("Input Dims")
        known = self._text("" if shapes is None else str(shapes))
        inputs = self._known(arguments) if called in FORMULAS or kind_of(called) else -1
        given = arguments.get("Input type")
        types = self._text(", ".join(map(str, given)) if isinstance(given, list) else "")
        self._columns["operators"].add((*times, sequence, external, name, known, types, inputs, thread, forward))
        return True

    def _known(self, arguments: JsonObject) -> int:
        """The index of an operator's inputs; -1 where the trace does not tell them."""
        dims, types, values = (arguments.get(key) for key in INPUTS)
        if not (isinstance(dims, list) and isinstance(types, list) and isinstance(values, list)):
            return -1
        strides = arguments.get(STRIDES)
        inputs = dims, types, values, strides if isinstance(strides, list) else []
        return self._inputs.setdefault(str(inputs), (len(self._inputs), inputs))[0]

    def _link(self, event: JsonObject) -> None:
        start, number = event.get("ts"), event.get("id")
        # What leads from nowhere to nowhere is not needed, but for what leads astray.
        if event.get("ph") in ("s", "f") and _number(start, REAL) and _number(number, int):
            row = round(event["ts"] * 1000), event["id"], self._thread(event), int(event["ph"] == "s")
            self._columns["links"].add(row)

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _queue(self, arguments: JsonObject) -> int:
        """The number of a stream of its context and device; -1 where no stream is told."""
        place = tuple(str(arguments.get(key)) for key in ("device", "context", "stream"))
        return self._queues.setdefault(place, len(self._queues)) if "stream" in arguments else -1

    def _thread(self, event: JsonObject) -> int:
        return self._threads.setdefault(str(event.get("tid")), len(self._threads))


def _number(value: Any, kind: Any) -> TypeGuard[Any]:
    return isinstance(value, kind) and -BEYOND < value < BEYOND and value is not True and value is not False


def _small(value: Any) -> int:
    """Return a size or the number of a stream; -1 if the value is none."""
    return value if _number(value, int) and abs(value) < 2**31 else -1


def _three(sizes: Any) -> list[int]:
    """Return three sizes; -1 for a missing one."""
    return [_small(size) for size in sizes] if isinstance(sizes, list) and len(sizes) == 3 else [-1] * 3


# Finds the launching call, the range and the step of each launch in a trace.


def launching_calls(trace: Trace) -> np.ndarray:
    """Return, per launch, the index of its launching call; -1 if the trace has none."""
    return find_calls(trace, trace.launches["correlation"])


def find_calls(trace: Trace, correlations: np.ndarray) -> np.ndarray:
    """Return the index of the call with each ID; -1 if the trace has none."""
    calls = trace.calls
    # A runtime call may share its ID with the driver's call inside it.
    order = np.lexsort((calls["start"], calls["correlation"]))
    order = order[calls["correlation"][order] >= 0]
    return look_up(correlations, calls["correlation"][order], order)


def look_up(wanted: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the value for each wanted key: the first one if a key repeats, -1 if it is missing.

    keys: in ascending order.
    """
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], -1)


def launch_times(trace: Trace) -> np.ndarray:
    """Return the time of each launching call in ns; -1 if unknown."""
    return np.append(trace.calls["start"], -1)[launching_calls(trace)]


def find_ranges(times: np.ndarray, trace: Trace) -> np.ndarray:
    """Return, per time, 1 + the index in LAUNCHING of the range open on any thread; 0 if none was."""
    codes, begins = _open_at(times, trace, LAUNCHING)
    return np.where(begins >= 0, codes + 1, 0)


def find_steps(times: np.ndarray, trace: Trace) -> np.ndarray:
    """Return, per time, the index of its step, from 0; -1 outside all steps."""
    return _open_at(times, trace, (STEP,))[1]


def count_steps(trace: Trace) -> int:
    """Count the project's steps in a trace."""
    return len(range_spans(trace, (STEP,))[0])


def range_spans(trace: Trace, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, end and name index of the project's ranges of these names, sorted by start."""
    known = {text: code for code, text in enumerate(trace.texts)}
    # Names carry profzoo's prefix, because a program may open ranges of its own with the plain names.
    code_of = {known[make_torch_name(one)]: index for index, one in enumerate(names) if make_torch_name(one) in known}
    chosen = np.flatnonzero(np.isin(trace.ranges["name"], list(code_of)))
    starts = trace.ranges["start"][chosen]
    ends = starts + trace.ranges["ns"][chosen]
    order = np.lexsort((ends, starts))
    codes = np.array([code_of[name] for name in trace.ranges["name"][chosen[order]]], dtype=np.int64)
    return starts[order], ends[order], codes


def _open_at(times: np.ndarray, trace: Trace, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return per time (ns) the index of the name of an open range, and the number of the range; -1 if none was."""
    starts, ends, codes = range_spans(trace, names)
    found = find_open(times, starts, ends)
    return np.append(codes, -1)[found], found
