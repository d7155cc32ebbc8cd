"""Reads a trace of torch.profiler into columns, event by event, so that one of a million launches fits into memory."""

import gzip
import json
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from profzoo.errors import DataError

DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
CALLS = ("cuda_runtime", "cuda_driver")
READ = {*DEVICE_KINDS, *CALLS, "user_annotation", "cpu_op"}
AGAIN = "delete it, and the next run collects it again"
# Microseconds of more than a century, of which the nanoseconds fit 64 bits.
BEYOND = 2**53
CHUNK = 1 << 20
EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
BETWEEN = re.compile(r"[\s,]*")
# Of a launch: numbers of blocks and threads, and bytes of shared memory that a block has.
SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "smem_bytes")
# Type codes of arrays: times in ns, IDs, and indices of texts and threads; -1 where an event has none.
COLUMNS = {
    "launches": dict.fromkeys(["start", "ns", "correlation", "external"], "q")
    | dict.fromkeys(["kind", "name", "stream", *SIZES], "i"),
    "calls": dict.fromkeys(["start", "correlation", "external"], "q") | dict.fromkeys(["name", "thread"], "i"),
    "ranges": dict.fromkeys(["start", "end"], "q") | dict.fromkeys(["name", "thread"], "i"),
    "operators": dict.fromkeys(["start", "end", "sequence", "external"], "q")
    | dict.fromkeys(["name", "shapes", "thread", "forward_thread"], "i"),
    "links": dict.fromkeys(["start", "id"], "q") | {"thread": "i", "forward": "b"},
}
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Trace:
    """Events by kind, each a column by name; texts: what names and shapes are indices of.

    launches: kernels, copies and memsets, of which `kind` is an index of DEVICE_KINDS; calls: of the runtime and the
    driver; ranges: what the program marked; operators: of torch, and ranges of modules; links: beginning and end of
    what leads from an operator to its backward one.
    """

    texts: list[str]
    launches: Columns
    calls: Columns
    ranges: Columns
    operators: Columns
    links: Columns


def read(path: str | Path) -> Trace:
    """The events of a Chrome trace.

    Raises:
        DataError: the file is none, is cut off, or has events without what they are read for.
    """
    reader = _Reader()
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, event in enumerate(_events(file)):
                if not reader.took(event):
                    raise DataError(f"{path} is damaged: event {number} is {json.dumps(event)[:80]}: {AGAIN}")
    except KeyError as error:
        raise DataError(f"{path} is no trace of torch.profiler, as it has no {error}: {AGAIN}") from error
    except (OSError, EOFError, zlib.error, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is no trace of torch.profiler, or damaged: {error}: {AGAIN}") from error
    return reader.trace()


def of_events(events: Iterable[Any]) -> Trace:
    """As read, of events that are sound."""
    reader = _Reader()
    for event in events:
        if not reader.took(event):
            raise DataError(f"an event is {json.dumps(event)[:80]}")
    return reader.trace()


def _events(file: TextIO) -> Iterator[Any]:
    """The elements of the list of events, of which no more than one and a chunk of the file are held at a time."""
    text = file.read(CHUNK)
    while not (begin := EVENTS.search(text)) and (more := file.read(CHUNK)):
        text += more
    if not begin:
        raise TypeError(f"traceEvents is a {type(json.loads(text)['traceEvents']).__name__}")
    before, text, place = text[: begin.end()], text[begin.end() :], 0
    decoder = json.JSONDecoder()
    while True:
        between = BETWEEN.match(text, place)
        place = between.end() if between else place
        if text[place : place + 1] == "]":
            break
        try:
            event, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            # Cut off by the chunk's end, or damaged, which shows at the end of the file.
            more = file.read(CHUNK)
            if not more:
                raise
            text, place = text[place:] + more, 0
            continue
        yield event
    # What surrounds the events has to be whole too.
    rest = text[place:] + "".join(iter(lambda: file.read(CHUNK), ""))
    json.loads(before + rest)["traceEvents"]


class _Reader:
    """Takes events, and sorts what is read of them into columns."""

    def __init__(self) -> None:
        self._columns = {
            kind: {name: array(code) for name, code in columns.items()} for kind, columns in COLUMNS.items()
        }
        self._texts: dict[str, int] = {}
        self._threads: dict[Any, int] = {}

    def trace(self) -> Trace:
        """What was taken."""
        found = {
            kind: {name: np.frombuffer(column, dtype=column.typecode) for name, column in columns.items()}
            for kind, columns in self._columns.items()
        }
        return Trace(texts=list(self._texts), **found)

    def took(self, event: Any) -> bool:
        """Whether an event is an object and, where it is read, has name, times and what it belongs to."""
        if not isinstance(event, dict):
            return False
        category = event.get("cat", "")
        if not isinstance(category, str) or category not in READ:
            if category == "fwdbwd":
                self._link(event)
            return isinstance(category, str)
        arguments = event.get("args", {})
        timed = all(_number(event.get(key), int | float) for key in ("ts", "dur"))
        if not (timed and isinstance(arguments, dict)):
            return False
        ids = [arguments.get(key, -1) for key in ("correlation", "External id")]
        linked = all(_number(one, int) for one in ids) and ("args" in event or category not in DEVICE_KINDS)
        if not (isinstance(event.get("name"), str) and linked and event["dur"] >= 0):
            return False
        times = round(event["ts"] * 1000), round(event["dur"] * 1000)
        if category in DEVICE_KINDS:
            return self._launch(event, category, times, ids)
        if category in CALLS:
            values = {"start": times[0], "correlation": ids[0], "external": ids[1]}
            self._add("calls", values | {"name": self._text(event["name"]), "thread": self._thread(event)})
            return True
        return self._operator(event, category, times, ids[1])

    def _launch(self, event: Mapping[str, Any], category: str, times: tuple[int, int], ids: list[int]) -> bool:
        arguments = event["args"]
        one = [arguments.get(key, -1) for key in ("shared memory", "stream")]
        shared, stream = (value if _small(value) else -1 for value in one)
        sizes = [*_three(arguments.get("grid")), *_three(arguments.get("block")), shared]
        values = {"start": times[0], "ns": times[1], "correlation": ids[0], "external": ids[1]}
        values |= {"kind": list(DEVICE_KINDS).index(category), "name": self._text(event["name"])}
        values |= {"stream": stream, **dict(zip(SIZES, sizes, strict=True))}
        self._add("launches", values)
        return True

    def _operator(self, event: Mapping[str, Any], category: str, times: tuple[int, int], external: int) -> bool:
        values = {"start": times[0], "end": sum(times), "name": self._text(event["name"])}
        values["thread"] = self._thread(event)
        if category == "user_annotation":
            self._add("ranges", values)
            return True
        arguments = event.get("args", {})
        sequence, forward = arguments.get("Sequence number", -1), arguments.get("Fwd thread id", 0)
        if not (_number(sequence, int) and _small(forward)):
            return False
        shapes = arguments.get("Input Dims")
        values |= {"shapes": self._text("" if shapes is None else str(shapes)), "external": external}
        self._add("operators", values | {"sequence": sequence, "forward_thread": forward})
        return True

    def _link(self, event: Mapping[str, Any]) -> None:
        start, number = event.get("ts"), event.get("id")
        # What leads from nowhere to nowhere is not needed, but for what leads astray.
        if event.get("ph") in ("s", "f") and _number(start, int | float) and _number(number, int):
            values = {"start": round(event["ts"] * 1000), "id": number, "forward": event["ph"] == "s"}
            self._add("links", values | {"thread": self._thread(event)})

    def _add(self, kind: str, values: Mapping[str, int]) -> None:
        columns = self._columns[kind]
        for name, value in values.items():
            columns[name].append(value)

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _thread(self, event: Mapping[str, Any]) -> int:
        return self._threads.setdefault(str(event.get("tid")), len(self._threads))


def _number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and abs(value) < BEYOND


def _small(value: Any) -> bool:
    return _number(value, int) and abs(value) < 2**31


def _three(sizes: Any) -> list[int]:
    """Three sizes, -1 for what there is none of."""
    known = isinstance(sizes, list) and len(sizes) == 3 and all(_small(size) for size in sizes)
    return sizes if known else [-1] * 3
