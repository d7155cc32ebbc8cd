"""Reads Chrome traces of torch.profiler, gzipped or plain, event by event, and repairs texts that it left unescaped.

torch.profiler (libkineto's writer, at least up to torch 2.11) writes names into its JSON without escaping them. A quote
in the name of a range then ends the text too early. Most such traces are no valid JSON. Some are, but with a wrong name
or wrong keys, for example after a range named `","x":"`. Therefore each event in the writer's layout is compared with
its text, and is read again by this layout if the two differ. Events in any other layout are read as plain JSON.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from profzoo.io.json_repair import decode_text, escape_texts

GZIP = b"\x1f\x8b"
CHUNK = 1 << 20
EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
# A trace may also be no more than the list of its events, which are objects.
LIST = re.compile(r"\s*\[(?=\s*[{\]])")
BETWEEN = re.compile(r"[\s,]*")
# How the profiler's writer begins an event that lasts, and what stands between two of its events, or behind the last.
BEGIN = '{\n    "ph": "X", "cat": "'
END = re.compile(r"\n\s{2}\}(?=\s*,?\s*\n\s{2}\{|\s*\n\s*\])")
KEYS = frozenset({"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"})
PLACE = r'(?:-?\d+|"[^"\n]*")'
# Its name may hold anything, so that the last of the places where it may end is meant.
HEAD = re.compile(
    r'\{\s*"ph": "X", "cat": "([^"\n]*)",\s*"name": "(.*)", "pid": (' + PLACE + '), "tid": (' + PLACE + r"),\s*"
    r'(?="ts": -?[\d.]+, "dur": -?[\d.]+\s*[,}])',
    re.DOTALL,
)


@contextmanager
def open_trace(path: str | Path) -> Iterator[TextIO]:
    """Open a trace as text, gzipped or not, whatever its name; invalid UTF-8 is replaced.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read, or its gzip data is damaged; also in the body.
    """
    with Path(path).open("rb") as raw:
        packed = raw.read(len(GZIP)) == GZIP
    reading = gzip.open if packed else open
    with reading(path, "rt", encoding="utf-8-sig", errors="replace") as file:
        yield file


class CutOffError(ValueError):
    """A trace ends too early."""


class Events:
    """Iterates over a trace's events, with at most one event and one chunk of the file in memory.

    mended: number of events repaired so far.
    """

    def __init__(self, file: TextIO) -> None:
        """Prepare to iterate; file: the trace as a text file."""
        # Control characters are let through, which the writer leaves in texts as well.
        self._file, self._decoder, self.mended = file, json.JSONDecoder(strict=False), 0
        # What the trace holds besides them, once all are read.
        self.others: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yield each event.

        Raises:
            CutOffError: the text ends too early.
            ValueError, KeyError, TypeError: the text is no trace, or not in the profiler's format.
        """
        text = self._file.read(CHUNK)
        listed = LIST.match(text)
        while not (begin := listed or EVENTS.search(text)) and (more := self._file.read(CHUNK)):
            text += more
        if not begin:
            raise TypeError(f"traceEvents is a {type(_whole(text)['traceEvents']).__name__}")
        before, text, place = text[: begin.end()], text[begin.end() :], 0
        while True:
            between = BETWEEN.match(text, place)
            place = between.end() if between else place
            if text[place : place + 1] == "]":
                break
            found, error = self._next(text, place)
            if not found and (more := self._file.read(CHUNK)):
                text, place = text[place:] + more, 0
                continue
            if error and not found:
                raise _cut_off(text, error) or error
            event, place = found or self._decoder.raw_decode(text, place)
            yield event
        # What surrounds the events has to be whole too.
        rest = text[place:] + "".join(iter(lambda: self._file.read(CHUNK), ""))
        self.others = _around_list(before + rest) if listed else _whole(before + rest)

    def _next(self, text: str, place: int) -> tuple[tuple[Any, int] | None, json.JSONDecodeError | None]:
        """Return the event at a position with its end, None if more text is needed; and its JSON error, if any."""
        error = None
        try:
            event, end = self._decoder.raw_decode(text, place)
            if not text.startswith(BEGIN, place) or _as_written(event, text, place) or _regular(text[place:end]):
                return (event, end), None
        except json.JSONDecodeError as wrong:
            # Cut off by the chunk's end, written unescaped, or damaged, which shows at the end of the file.
            error = wrong
        if not text.startswith("{\n", place) or not (last := END.search(text, place)):
            return None, error
        try:
            found = _mended(text[place : last.end()]), last.end()
        except ValueError:
            return None, error
        self.mended += 1
        return found, None


def read_events(path: str | Path) -> list[Any]:
    """Return all events of a trace; raises the errors of open_trace and Events."""
    with open_trace(path) as file:
        return list(Events(file))


def rewrite_events(path: Path, change: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
    """Write the changed events of a trace as standard JSON, gzipped if the file name says so.

    Raises the errors of open_trace and Events.
    """
    with open_trace(path) as file:
        read = Events(file)
        found = list(read)
    writing = gzip.open if path.suffix == ".gz" else open
    with writing(path, "wt", encoding="utf-8") as file:
        json.dump({**read.others, "traceEvents": change(found)}, file)


def _as_written(event: Any, text: str, place: int) -> bool:
    """Return whether an event in the writer's layout has the name in the text, by the text around the name."""
    place_of = f'"pid": {event.get("pid")}, "tid": {event.get("tid")},\n'
    return text.startswith(f'{event.get("cat")}", "name": "{event.get("name")}", {place_of}', place + len(BEGIN))


def _regular(text: str) -> bool:
    """Return whether an event has each expected key once, and no other key: a name that ends too early adds keys."""
    keys: list[str] = []

    def noted(pairs: list[tuple[str, Any]]) -> None:
        # The outermost object is the last to be told of.
        keys[:] = [key for key, _ in pairs]

    json.loads(text, strict=False, object_pairs_hook=noted)
    return len(set(keys)) == len(keys) and {*keys, "args"} == KEYS


def _mended(text: str) -> Any:
    """Read an event by the writer's layout, which shows where texts end; raise ValueError for any other layout.

    >>> text = '{\\n    "ph": "X", "cat": "cpu_op", "name": "a"b", "pid": 1, "tid": 2,\\n    "ts": 1.5, "dur": 2\\n  }'
    >>> _mended(text)["name"]
    'a"b'
    """
    head = HEAD.match(text)
    if not head:
        return json.loads(escape_texts(text), strict=False)
    category, name, process, thread = head.groups()
    named = f'"cat": "{category}", "name": {json.dumps(decode_text(name))}'
    begin = f'{{"ph": "X", {named}, "pid": {process}, "tid": {thread}, '
    rest = text[head.end() :]
    try:
        return json.loads(begin + rest, strict=False)
    except json.JSONDecodeError:
        return json.loads(begin + escape_texts(rest), strict=False)


def _whole(text: str) -> Any:
    """Return the content of a trace without its events; raise ValueError, KeyError or TypeError if it is no trace."""
    try:
        found = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        if cut := _cut_off(text, error):
            raise cut from None
        found = json.loads(escape_texts(text), strict=False)
    found["traceEvents"]
    return found


def _around_list(text: str) -> dict[str, Any]:
    """Check that a trace that is a list ends as one; it holds nothing but its events."""
    json.loads(text)
    return {}


def _cut_off(text: str, error: json.JSONDecodeError) -> CutOffError | None:
    """Return an error if a trace ends too early, judged by its last text and the error in it; else None."""
    last = text.rstrip()
    ends = last.endswith("}") and error.pos < len(last)
    return None if ends else CutOffError("its end is missing")
