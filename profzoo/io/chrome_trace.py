"""Reads Chrome traces of torch.profiler, gzipped or plain, event by event, and repairs texts that it left unescaped.

torch.profiler (libkineto's writer, at least up to torch 2.11) writes names into its JSON without escaping them. A quote
in the name of a range then ends the text too early. Most such traces are not valid JSON. Some are, but with a wrong
name or wrong keys, for example after a range named `","x":"`. Therefore each event in the writer's layout is compared
with its text, and is read again by this layout if the two differ. Events in any other layout are read as plain JSON.
"""

import gzip
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

# Escapes quotes and backslashes in JSON texts that were written unescaped: a text ends where JSON can continue.

QUOTE = re.compile(r'["{}\[\]]')
# Characters that may follow the closing quote of a key, of a value in an object, and of a value in a list.
KEY = re.compile(r"\s*:")
IN_OBJECT = re.compile(r'\s*(?:\}|,\s*"[^"]*"\s*:|$)')
IN_LIST = re.compile(r'\s*(?:\]|,\s*(?:["\[{]|-?\d|true|false|null))')


def decode_text(raw: str) -> str:
    """Decode the text between quotes: as JSON if it is escaped, else unchanged.

    >>> decode_text('a"b'), decode_text('a\\\\"b'), decode_text('a\\\\d')
    ('a"b', 'a"b', 'a\\\\d')
    """
    try:
        return json.loads(f'"{raw}"', strict=False)
    except json.JSONDecodeError:
        return raw


def escape_texts(text: str) -> str:
    """Escape a text that would be JSON except for its quotes and backslashes.

    text: may begin and end within objects. A quote ends a text if JSON could continue after it. A quote inside a text
    is therefore mistaken for its end if the same characters follow it.

    >>> escape_texts('{"a": "b"c", "d": ["e", "f"g"]}')
    '{"a": "b\\\\"c", "d": ["e", "f\\\\"g"]}'
    """
    found: list[str] = []
    # Open brackets; brackets that were opened before the text's beginning are unknown.
    opened: list[str] = []
    place = 0
    while mark := QUOTE.search(text, place):
        found.append(text[place : mark.end()])
        place = mark.end()
        if mark[0] in "{[":
            opened.append(mark[0])
        elif mark[0] in "}]":
            del opened[-1:]
        else:
            end = _end(text, place, in_list=opened[-1:] == ["["])
            found.append(json.dumps(decode_text(text[place:end]), ensure_ascii=False)[1:])
            place = end + 1
    return "".join([*found, text[place:]])


def _end(text: str, place: int, in_list: bool) -> int:
    """Return the position at which the text that begins at `place` ends; raise ValueError if it does not end."""
    for quote in re.compile('"').finditer(text, place):
        if in_list:
            ends = IN_LIST.match(text, quote.end())
        else:
            ends = KEY.match(text, quote.end()) or IN_OBJECT.match(text, quote.end())
        if ends:
            return quote.start()
    raise ValueError("a text has no end")


GZIP = b"\x1f\x8b"
CHUNK = 1 << 20
EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
# A trace may also be no more than the list of its events, which are objects.
LIST = re.compile(r"\s*\[(?=\s*[{\]])")
BETWEEN = re.compile(r"[\s,]*")
# How the profiler's writer begins an event that lasts, and what stands between two of its events, or behind the last.
BEGIN = '{\n    "ph": "X", "cat": "'
END = re.compile(r"\n\s{2}\}(?=\s*,?\s*\n\s{2}\{|\s*\n\s*\])")
# Numbers as C++ prints them, and texts, which may hold the same letters.
NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.])([-+]?)(nan|inf|infinity)(?![\w.])', re.DOTALL | re.IGNORECASE)
UNQUOTED, NEARBY = re.compile(r"[-+]?(?:nan|inf)", re.IGNORECASE), 1 << 12
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
            ValueError, KeyError, TypeError: the text is not a trace, or not in the profiler's format.
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
        other = error and not text.startswith(BEGIN, place) and UNQUOTED.match(text, error.pos)
        if other and (numbered := _decode_numbers(self._decoder, text, place, other.start())):
            return numbered, None
        if not text.startswith("{\n", place) or not (last := END.search(text, place)):
            return None, error
        piece = text[place : last.end()]
        if (event := _numbered(piece)) and (not text.startswith(BEGIN, place) or _as_written(event, text, place)):
            return (event, last.end()), None
        try:
            found = _mended(piece), last.end()
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
        return json.loads(escape_texts(_as_json(text)), strict=False)
    category, name, process, thread = head.groups()
    named = f'"cat": "{category}", "name": {json.dumps(decode_text(name))}'
    begin = f'{{"ph": "X", {named}, "pid": {process}, "tid": {thread}, '
    rest = _as_json(text[head.end() :])
    try:
        return json.loads(begin + rest, strict=False)
    except json.JSONDecodeError:
        return json.loads(begin + escape_texts(rest), strict=False)


def _as_json(text: str) -> str:
    """Return the text with numbers that C++ writes as `inf` and `nan`, as libkineto does, in the words of JSON.

    >>> _as_json('{"inf": -inf, "warps per SM": nan, "a": 1}')
    '{"inf": -Infinity, "warps per SM": NaN, "a": 1}'
    """

    def word(found: re.Match[str]) -> str:
        if not found[2]:
            return found[0]
        return "NaN" if found[2].lower() == "nan" else f"{found[1].strip('+')}Infinity"

    return NUMBERS.sub(word, text)


def _decode_numbers(decoder: json.JSONDecoder, text: str, place: int, number: int) -> tuple[Any, int] | None:
    """Return the event at `place`, in any layout, and its end; None if it is cut off.

    number: where it has a number that C++ wrote.
    """
    for until in (number + NEARBY, len(text)):
        piece = text[place:until]
        try:
            event, end = decoder.raw_decode(_as_json(piece))
        except json.JSONDecodeError:
            continue
        longer = 0
        for found in NUMBERS.finditer(piece):
            if found.start() + longer >= end:
                break
            longer += len(_as_json(found[0])) - len(found[0])
        return event, place + end - longer
    return None


def _numbered(text: str) -> Any:
    """Read an event with such numbers; None if it is not JSON but for them."""
    try:
        return json.loads(_as_json(text), strict=False)
    except json.JSONDecodeError:
        return None


def _whole(text: str) -> Any:
    """Return the content of a trace without its events; ValueError, KeyError or TypeError if it is not a trace."""
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


# How torch names the range of a step that its schedule counts.
NUMBERED = "ProfilerStep"


def drop_last_step(events: Sequence[Any]) -> list[Any]:
    """Return the events of a trace without those since the beginning of the last step.

    >>> drop_last_step([{"name": "ProfilerStep#7", "ts": 5}, {"name": "aten::mm", "ts": 6}, {"name": "a", "ts": 4}])
    [{'name': 'a', 'ts': 4}]
    """
    timed = [one for one in events if isinstance(one, dict) and isinstance(one.get("ts"), int | float)]
    steps = (one["ts"] for one in timed if str(one.get("name")).startswith(NUMBERED))
    begun = max(steps, default=math.inf)
    late = {id(one) for one in timed if one["ts"] >= begun and one.get("ph") != "M"}
    return [one for one in events if id(one) not in late]
