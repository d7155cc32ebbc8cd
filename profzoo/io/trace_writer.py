"""Writes traces in the Trace Event Format (JSON) that Perfetto and chrome://tracing open, event by event, gzipped.

The format is Google's "Trace Event Format":
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times in a trace
are in us; all times here are in ns. They are written with three decimals, so that nothing is rounded.
"""

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, TypeAlias

# Values beside a slice: texts and numbers by name.
Arguments: TypeAlias = Mapping[str, str | int | float]
NO_ARGUMENTS: Arguments = {}
# Perfetto shows no arrow unless its two ends agree in this name.
FLOW = "launch"


@dataclass
class Track:
    """A row of the picture.

    Slices on one row must lie within one another or apart, or Perfetto drops them. A slice that does neither goes to a
    further lane: a row of its own below.

    nested: whether slices that lie within one another are calls within calls. Otherwise they are drawn side by side, on
    lanes.
    """

    process: int
    name: str
    nested: bool
    # By lane, the ends of the slices that are open; and the numbers of the lanes' rows.
    open_ends: list[list[int]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def find_lane(self, start: int, end: int) -> int:
        """Return the first lane that has room for a slice; slices come by start, of equal ones the longer first."""
        for lane, ends in enumerate(self.open_ends):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or (self.nested and end <= ends[-1]):
                ends.append(end)
                return lane
        self.open_ends.append([end])
        return len(self.open_ends) - 1


class TraceWriter:
    """Writes the events of a trace; use open_writer to make one. Processes are numbered as in the picture."""

    def __init__(self, file: TextIO) -> None:
        """file: where the events go, behind the beginning of their list."""
        self._file, self._begun, self._rows = file, False, 0
        self._texts: dict[str, str] = {}
        # Number of slices that were written.
        self.slices = 0

    def name_process(self, process: int, name: str, order: int) -> None:
        """Name a process, under which its tracks stand; order: its place in the picture."""
        self._name("process_name", process, 0, {"name": name})
        self._name("process_sort_index", process, 0, {"sort_index": order})

    def add_slice(self, track: Track, name: str, start: int, end: int, arguments: Arguments = NO_ARGUMENTS) -> int:
        """Write a slice and return its row; on each track slices come by start, of equal ones the longer first."""
        lane = track.find_lane(start, end)
        if lane == len(track.rows):
            self._add_row(track)
        row = track.rows[lane]
        more = f',"args":{json.dumps(arguments)}' if arguments else ""
        head = f'{{"ph":"X","pid":{track.process},"tid":{row},"name":{self._text(name)}'
        self._write(f'{head},"ts":{format_us(start)},"dur":{format_us(end - start)}{more}}}')
        self.slices += 1
        return row

    def begin_flow(self, process: int, row: int, start: int, number: int) -> None:
        """Begin an arrow at the slice that was written last, which starts at `start`; number: of the arrow."""
        self._write(f'{{"ph":"s",{self._flow(process, row, start, number)}}}')

    def end_flow(self, process: int, row: int, start: int, number: int) -> None:
        """End an arrow at the slice that was written last; one that begins once may end several times."""
        self._write(f'{{"ph":"f","bp":"e",{self._flow(process, row, start, number)}}}')

    def add_value(self, process: int, counter: str, when: int, value: float) -> None:
        """Write the value that a counter has from a time on."""
        head = f'{{"ph":"C","pid":{process},"tid":0,"name":{self._text(counter)}'
        self._write(f'{head},"ts":{format_us(when)},"args":{{"value":{json.dumps(value)}}}}}')

    def _flow(self, process: int, row: int, start: int, number: int) -> str:
        place = f'"pid":{process},"tid":{row},"ts":{format_us(start)}'
        return f'{place},"id":{number},"cat":"{FLOW}","name":"{FLOW}"'

    def _add_row(self, track: Track) -> None:
        # Numbers of rows begin at 1, as 0 is the idle thread to Perfetto.
        self._rows += 1
        track.rows.append(self._rows)
        place = len(track.rows)
        name = track.name if place == 1 else f"{track.name} ({place})"
        self._name("thread_name", track.process, self._rows, {"name": name})
        self._name("thread_sort_index", track.process, self._rows, {"sort_index": self._rows})

    def _name(self, kind: str, process: int, row: int, arguments: Arguments) -> None:
        self._write(json.dumps({"ph": "M", "pid": process, "tid": row, "name": kind, "args": arguments}))

    def _text(self, text: str) -> str:
        if text not in self._texts:
            self._texts[text] = json.dumps(text)
        return self._texts[text]

    def _write(self, event: str) -> None:
        self._file.write(f",\n{event}" if self._begun else f"\n{event}")
        self._begun = True


@contextmanager
def open_writer(path: str | Path) -> Iterator[TraceWriter]:
    """Open a gzipped trace for writing; the file is complete at the end of the `with` block."""
    # Without a time of writing, so that the same trace is the same file.
    with (
        Path(path).open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as file,
    ):
        # Without `displayTimeUnit`: Perfetto's trace processor (seen in 20.1) takes it for the unit of all times.
        file.write('{"traceEvents":[')
        yield TraceWriter(file)
        file.write("\n]}\n")


def format_us(ns: int) -> str:
    """Return a time in ns as a number of us, exactly.

    >>> format_us(1234567), format_us(5), format_us(-1500)
    ('1234.567', '0.005', '-1.500')
    """
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"
