"""Names the places in the source where calls were made, and observes one step of a loop."""

import ast
import dis
import itertools
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Generic, Protocol, TypeVar

import torch

# Longest text of a line, and of an operation that is shown as it is written.
LONGEST_TEXT, LONGEST_OPERATION = 160, 40
# Bytes per entry of Python's bytecode.
ENTRY = 2
BOOLEAN, FORMATTED = "bool()", "format()"
# Modules of profzoo whose work within a step is not a part of the program: other ones call functions of torch or of the
# program in its place.
INSPECTING = (
    "first_steps.py", "double_precision.py", "output_samples.py", "peak_memory.py", "memory_blocks.py", "recorders.py",
    "timers.py", "batch_padding.py", "repeated_calls.py",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """One instruction of a program.

    code, position: the instruction (an offset in bytes, as in `frame.f_lasti`). line: its line in the file.
    through: the function that the instruction called in Python; empty for one that is not written in Python.
    """

    code: CodeType
    position: int
    line: int
    through: str


@dataclass(frozen=True)
class SourceLine:
    """A place as a reader finds it; file: relative to its package or to the working folder where it lies inside."""

    file: str
    line: int
    function: str
    text: str
    operation: str


class PlaceFinder:
    """Finds on a stack of Python frames the innermost one that is the program's own.

    Frames of torch, of Python's library, of generated code and of profzoo are not the program's.
    """

    def __init__(self, outermost: CodeType | None = None) -> None:
        """outermost: the code at which the search ends: what has called it belongs to profzoo, not to the program."""
        folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
        packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(torch.__file__).parents[1])}
        # Of the user's own, and of environments below this one.
        packages |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
        self._stdlib = tuple(f"{path}{os.sep}" for path in _spellings(folders))
        self._packages = tuple(f"{path}{os.sep}" for path in _spellings(packages))
        self._torch = tuple(f"{path}{os.sep}" for path in _spellings({str(Path(torch.__file__).parent)}))
        self._profzoo = tuple(f"{path}{os.sep}" for path in _spellings({str(Path(__file__).parents[1])}))
        # Those of torch first.
        self._others = (*self._torch, *self._profzoo)
        self._outermost = outermost
        self._here = f"{Path.cwd()}{os.sep}"

    def find(self, frame: FrameType | None) -> tuple[Place, Mapping[str, Any]] | None:
        """The innermost place of the program on a stack, and the global names of its module.

        Where the program is not on the stack, such as in a thread of torch's, it is the innermost place of torch, else
        of profzoo; None if there is no such place either, or if profzoo itself inspects the step.
        """
        inner: FrameType | None = None
        found: list[tuple[Place, Mapping[str, Any]] | None] = [None] * len(self._others)
        while frame is not None and frame.f_code is not self._outermost:
            file = frame.f_code.co_filename
            if self._is_own(file):
                return self._place(frame, inner), frame.f_globals
            if file.startswith(self._profzoo) and Path(file).name in INSPECTING:
                return None
            for number, folder in enumerate(self._others):
                if file.startswith(folder):
                    found[number] = found[number] or (self._place(frame, inner), frame.f_globals)
            frame, inner = frame.f_back, frame
        return next(filter(None, found), None)

    def find_own_line(self, frame: FrameType | None, through_packages: bool) -> tuple[str, int] | None:
        """The innermost line of the program's own files on a stack, as file and number; None if there is none.

        through_packages: whether an installed package may have been called there, instead of torch itself.
        """
        while frame is not None and frame.f_code is not self._outermost:
            file = frame.f_code.co_filename
            if self._is_own(file):
                if not file.startswith(self._packages):
                    return self.shorten(file), frame.f_lineno or 0
                if not through_packages:
                    return None
            frame = frame.f_back
        return None

    def shorten(self, file: str) -> str:
        """Path of a file relative to its installed package or to the working folder, where it lies inside."""
        for folder in (*self._packages, *self._stdlib, self._here):
            if file.startswith(folder):
                return file.removeprefix(folder)
        return file

    def describe(self, place: Place, names: Mapping[str, Any]) -> SourceLine:
        """Describe a place for readers; names: the global names of its module."""
        code = place.code
        text = linecache.getline(code.co_filename, place.line, dict(names)).strip()
        operation = _operation(place, names) or (f"{place.through}()" if place.through else "")
        function = getattr(code, "co_qualname", code.co_name)
        return SourceLine(
            self.shorten(code.co_filename), place.line, function, text[:LONGEST_TEXT], operation[:LONGEST_OPERATION]
        )

    def _place(self, frame: FrameType, inner: FrameType | None) -> Place:
        """Place of a frame; inner: the frame that it called, if it called one."""
        called = inner.f_code if inner and inner.f_code.co_filename.startswith(self._torch) else None
        return Place(frame.f_code, frame.f_lasti, frame.f_lineno or 0, called.co_name if called else "")

    def _is_own(self, file: str) -> bool:
        generated = file.startswith(("<frozen", "<eval_with_key")) or "torchinductor_" in file
        if generated or file.startswith(self._others):
            return False
        # Installed packages lie within the folder of Python's library.
        return file.startswith(self._packages) or not file.startswith(self._stdlib)


def _spellings(paths: set[str]) -> Iterator[str]:
    """Yield paths as given, and with links resolved."""
    for path in filter(None, paths):
        yield from dict.fromkeys((path, os.path.realpath(path)))


def _operation(place: Place, names: Mapping[str, Any]) -> str:
    """Text for the operation of an instruction: `.item()`, `torch.nonzero()`, `x[mask]`, `bool()`; empty if unclear."""
    instruction = _opcode_name(place.code, place.position)
    if "JUMP" in instruction or instruction in ("TO_BOOL", "UNARY_NOT"):
        return BOOLEAN
    if instruction.startswith("FORMAT"):
        return FORMATTED
    segment = _segment(place)
    try:
        node = ast.parse(f"({segment})", mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(node, ast.Call) and instruction.startswith(("CALL", "PRECALL", "KW_NAMES")):
        return _called(node.func, names)
    if isinstance(node, ast.Subscript):
        written = ast.unparse(node)
        return written if len(written) <= LONGEST_OPERATION else "[...]"
    return ""


def _called(function: ast.expr, names: Mapping[str, Any]) -> str:
    """Name of a called function: with its module if it is of one, else behind a point if it is a method."""
    if isinstance(function, ast.Name):
        return f"{function.id}()"
    if not isinstance(function, ast.Attribute):
        return ""
    root: ast.expr = function
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and isinstance(names.get(root.id), ModuleType):
        return f"{ast.unparse(function)}()"
    return f".{function.attr}()"


def _opcode_name(code: CodeType, position: int) -> str:
    """Name of the instruction at a position, which may point at one of its cache entries."""
    written = code.co_code
    while position > 0 and dis.opname[written[position]] == "CACHE":
        position -= ENTRY
    return dis.opname[written[position]] if 0 <= position < len(written) else ""


def _segment(place: Place) -> str:
    """Source text that an instruction was made from; empty if the compiler did not keep its columns."""
    entries = itertools.islice(place.code.co_positions(), place.position // ENTRY, None)
    first, last, start, end = next(entries, (None, None, None, None))
    if first is None or last is None or start is None or end is None:
        return ""
    lines = [linecache.getline(place.code.co_filename, number) for number in range(first, last + 1)]
    # Columns count bytes of UTF-8.
    encoded = [line.encode() for line in lines]
    encoded[-1] = encoded[-1][:end]
    before, encoded[0] = encoded[0][:start], encoded[0][start:]
    # Of a method on a line of its own, Python keeps what follows the point.
    owner = b"_." if before.rstrip().endswith(b".") else b""
    return (owner + b"".join(encoded)).decode(errors="replace").strip()


# Observes one step of a loop, by its index.

SeenStep = TypeVar("SeenStep", covariant=True)
Kept = TypeVar("Kept")


class Observer(Protocol[SeenStep]):
    """Observes between `start` and `stop`."""

    def start(self) -> None:
        """Begin to observe."""

    def stop(self) -> SeenStep | None:
        """Stop, restore everything, and return what was seen; None if that is not known."""


class SingleStep(Generic[Kept]):
    """Observes the step with a certain index; `found` holds what was seen, None if nothing was observed."""

    def __init__(self, index: int | None, make: Callable[[], Observer[Kept] | None]) -> None:
        """index: of the step; None for no step. make: returns its observer as it begins; None observes nothing."""
        self._index, self._make = index, make
        self._running: Observer[Kept] | None = None
        self.found: Kept | None = None

    def begin(self, index: int) -> None:
        """Begin to observe if this is the step to observe."""
        if index == self._index and (made := self._make()):
            self._running = made
            made.start()

    def end(self) -> None:
        """Stop observing, if the step that ends now was observed."""
        if self._running:
            self.found, self._running = self._running.stop(), None

    @contextmanager
    def during(self, index: int) -> Iterator[None]:
        """Observe the body if it is the step to observe; restores everything, also when the body raises."""
        self.begin(index)
        try:
            yield
        finally:
            self.end()
