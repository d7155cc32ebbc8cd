"""Finds the project files that a Python file imports, directly or not, by parsing import statements only."""

import ast
import errno
import functools
import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from profzoo import extensions
from profzoo.errors import UnusableError
from profzoo.records import atomic_writes, digests

# Reads what a Python file imports and declares from its syntax, and keeps that by content for later processes.
#
# Parsing the project takes half of the time in which a run is planned, and its files rarely change.

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
        UnusableError: it cannot be read, is not Python, or names no files in FILES.
    """
    what = f"module '{module}'"
    content = _read_statements(path, what)
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
    """Parse a file's syntax tree; one-line UnusableError if it cannot be read or is not Python."""
    return _parse(_read_statements(path, what), path, what)


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


def _read_statements(path: Path, what: str) -> bytes:
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
        raise UnusableError(f"{path}: {what} is not Python: {reason[0]}{where}") from error


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


# Itself, also where a job imports it through links.
PROJECT = Path(__file__).resolve().parents[2]
# The folder that holds each package of the project.
PACKAGES = {"models": PROJECT, "profzoo": PROJECT}


def import_closure(start: Iterable[tuple[str, Path]], roots: Mapping[str, Path]) -> list[Path]:
    """Sorted files of these modules (dotted name, file) and of everything that they import of the packages.

    roots: of each package that counts, the folder that holds it.

    Raises:
        UnusableError: one of them cannot be read or is not Python.
    """
    known = _known_edges(tuple(roots.items()), extensions.folders())
    waiting, found = [(module, str(path)) for module, path in start], set[str]()
    while waiting:
        one = module, path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.endswith(".py"):
            if one not in known:
                known[one] = _edges(module, Path(path), roots)
            waiting += known[one]
    # As paths are sorted, folder by folder.
    return [path for _, path in sorted(map(_parts, found))]


@functools.cache
def _known_edges(
    roots: tuple[tuple[str, Path], ...], extended: tuple[Path, ...]
) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """What modules that were read import, of these packages and extensions; files are strings for speed."""
    return {}


def _edges(module: str, path: Path, roots: Mapping[str, Path]) -> list[tuple[str, str]]:
    """The modules (dotted name, file) that a module imports of the packages, or declares."""
    found: list[tuple[str, Path]] = []
    for name in (module, *_imported(path, module)):
        if own := extensions.split_module_name(name):
            found += [(extensions.module_name(file), file) for _, file in _modules(*own)]
        elif root := roots.get(name.partition(".")[0]):
            found += _modules(root, name)
    found += [(_named(file, roots.values()), file) for file in declared_files(path, module)]
    return list(dict.fromkeys((name, str(file)) for name, file in found))


@functools.cache
def _parts(path: str) -> tuple[tuple[str, ...], Path]:
    return Path(path).parts, Path(path)


def files_of(*paths: str) -> tuple[Path, ...]:
    """Project files that scripts or modules depend on, by path from the project's root.

    Their own, all that they import of the project, and what any of these loads beside that: files next to a module,
    which it names in a literal FILES, as patterns, and files of extensions, which it names in EXTENDED, as patterns
    from an extension's folder. Of Python among those, what it imports counts too. Paths are absolute.

    Raises:
        UnusableError: one of them cannot be read or is not Python.
    """
    return _made_of(paths, extensions.folders())


def files_of_inputs(code: Iterable[Path]) -> list[Path]:
    """Sorted files of the project that a job runs, by the code among its inputs: these, and all that they import."""
    return list(files_of(*sorted({place(path.resolve()) for path in code})))


@functools.cache
def _made_of(paths: tuple[str, ...], extended: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(import_closure([(_dotted(path), PROJECT / path) for path in paths], PACKAGES))


def _dotted(path: str) -> str:
    return extensions.module_name(Path(path)) or path.removesuffix(".py").replace("/", ".")


def place(path: str | Path) -> str:
    """A file as `files_of` takes it: by its path from the project's root, or whole where the project does not hold it.

    >>> place(PROJECT / "profzoo" / "formatting.py"), place("/home/me/lab/figures/mine.py")
    ('profzoo/formatting.py', '/home/me/lab/figures/mine.py')
    """
    whole = PROJECT / path
    return whole.relative_to(PROJECT).as_posix() if whole.is_relative_to(PROJECT) else str(whole)


def read_literals(path: Path) -> dict[str, Any]:
    """Literals, such as numbers and tuples, that a Python file assigns to names at its top level."""
    return literals(parse_file(path, f"'{path.stem}'"))


@functools.cache
def _modules(root: Path, name: str) -> tuple[tuple[str, Path], ...]:
    """Files of a dotted name and of its enclosing packages, as far as they exist."""
    parts = name.split(".")
    places = [(".".join(parts[:end]), root.joinpath(*parts[:end])) for end in range(1, len(parts) + 1)]
    files = [(one, file) for one, place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return tuple((one, file) for one, file in files if file.is_file())


def _imported(path: Path, module: str) -> Iterator[str]:
    """Names that a file imports and that may be modules; relative names made absolute."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for level, named, names in _read(path, module).imports:
        above = package[: len(package) - level + 1] if level else []
        base = ".".join([*above, *([named] if named else [])])
        yield from (base, *(f"{base}.{name}" for name in names))


@functools.cache
def _read(path: Path, module: str) -> Statements:
    return read_statements(path, module)


def declared_files(path: Path, module: str = "") -> tuple[Path, ...]:
    """The files that a module names in FILES and EXTENDED; module: its dotted name, for what is wrong with it."""
    return (*_files_beside(path, module), *extensions.files(*_read(path, module or path.stem).extended))


@functools.cache
def _files_beside(path: Path, module: str) -> tuple[Path, ...]:
    return tuple(
        file.resolve()
        for pattern in _read(path, module or path.stem).files
        for file in sorted(path.parent.glob(pattern))
    )


def _named(path: Path, roots: Iterable[Path]) -> str:
    """Dotted name by which a file is imported from one of the folders; its bare name if none contains it."""
    if own := extensions.module_name(path):
        return own
    for root in roots:
        if path.is_relative_to(root):
            return ".".join(path.relative_to(root).with_suffix("").parts)
    return path.stem
