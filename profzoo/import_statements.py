"""Reads what a Python file imports and declares from its syntax, and keeps that by content for later processes.

Parsing the project takes half of the time in which a run is planned, and its files rarely change.
"""

import ast
import errno
import hashlib
import json
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from profzoo.errors import UnusableError
from profzoo.records import atomic_writes, digests

# For processes that run in the same folder.
KEPT = Path(".snakemake/profzoo/imports.json")
# Beyond so many modules, those that this process did not read are forgotten: most are earlier versions.
MOST = 2000


class Statements(NamedTuple):
    """What a module's statements say: what they import, and the literals FILES and EXTENDED.

    imports: of each, how many packages up it starts, the module, and names from it that may be modules too.
    """

    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    files: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()


# By the digest of a file's content; those that were loaded are converted when they are asked for.
_known: dict[str, Statements] = {}
_loaded: dict[str, Any] = {}


def read_statements(path: Path, module: str) -> Statements:
    """Read a module's statements; module: its dotted name, for what is wrong with it.

    Raises:
        UnusableError: it cannot be read, is no Python, or names no files in FILES.
    """
    what = f"module '{module}'"
    content = _read(path, what)
    key = hashlib.sha256(content).hexdigest()
    if known := _known.get(key):
        return known
    with suppress(KeyError, TypeError, ValueError):
        _known[key] = _restored(*_loaded[key])
        return _known[key]
    tree = _parse(content, path, what)
    found = literals(tree)
    files, extended = found.get("FILES", ()), found.get("EXTENDED", ())
    listed = files if isinstance(files, tuple | list) else [None]
    if not all(isinstance(one, str) and one and not one.startswith("/") for one in listed):
        raise UnusableError(f"{path}: FILES = {files!r} of module '{module}' holds no patterns of files beside it")
    _known[key] = Statements(tuple(_imports(tree)), tuple(files), tuple(extended))
    return _known[key]


def parse_file(path: Path, what: str) -> ast.Module:
    """Parse a file's syntax tree; one-line UnusableError if it cannot be read or is no Python."""
    return _parse(_read(path, what), path, what)


def load_statements(path: Path = KEPT) -> None:
    """Load what earlier processes kept; files are parsed again where it is damaged or of another version."""
    with suppress(OSError, ValueError):
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
        if digest == _seal(text):
            _loaded.update(json.loads(text))


def save_statements(path: Path = KEPT) -> None:
    """Keep what this process has read for later ones."""
    if _known.keys() <= _loaded.keys():
        return
    if len(_loaded) > MOST:
        _loaded.clear()
    _loaded.update(_known)
    # What cannot be kept is parsed again.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_writes.write_synced(path, format_statements())


def format_statements() -> str:
    """Format all that is known as the text that is kept."""
    text = json.dumps(_loaded | _known)
    return f"{_seal(text)}\n{text}"


def _seal(text: str) -> str:
    """A digest of the text, of this module, and of the version of Python that parses."""
    return digests.text_digest(f"{platform.python_version()}\n{digests.compute_digest(Path(__file__))}\n{text}")


def _restored(imports: Any, files: Any, extended: Any) -> Statements:
    return Statements(
        tuple((level, base, tuple(names)) for level, base, names in imports), tuple(files), tuple(extended)
    )


def _read(path: Path, what: str) -> bytes:
    try:
        if path.is_fifo() or path.is_char_device():
            # Reading would never end.
            raise OSError(errno.EINVAL, "it is a pipe or a device")
        return path.read_bytes()
    except OSError as error:
        raise UnusableError(f"{path}: {what} cannot be read: {error.strerror}") from error


def _parse(content: bytes, path: Path, what: str) -> ast.Module:
    try:
        return ast.parse(content, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = (error.msg if isinstance(error, SyntaxError) else str(error)).splitlines() or ["nested too deeply"]
        raise UnusableError(f"{path}: {what} is no Python: {reason[0]}{where}") from error


def literals(tree: ast.Module) -> dict[str, Any]:
    """Literals, such as numbers and tuples, that are assigned to names at a tree's top level."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with suppress(ValueError, TypeError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def _imports(tree: ast.Module) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", tuple(alias.name for alias in node.names)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements of a tree that run, without those for type checkers; expressions are skipped for speed."""
    for part in ("body", "handlers", "cases", "orelse", "finalbody"):
        for node in getattr(tree, part, ()):
            if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                yield node
                yield from _executed(node)
