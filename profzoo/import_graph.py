"""Finds the project files that a Python file imports, directly or not, by parsing import statements only."""

import ast
import contextlib
import errno
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from profzoo import extensions
from profzoo.errors import UnusableError

# Itself, also where a job imports it through links.
PROJECT = Path(__file__).resolve().parents[1]
# The folder that holds each package of the project.
PACKAGES = {"models": PROJECT, "profzoo": PROJECT}


def parse_file(path: Path, what: str) -> ast.Module:
    """Parse a file's syntax tree; one-line UnusableError if it cannot be read or is no Python."""
    try:
        if path.is_fifo() or path.is_char_device():
            # Reading would never end.
            raise OSError(errno.EINVAL, "it is a pipe or a device")
        return ast.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UnusableError(f"{path}: {what} cannot be read: {error.strerror}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = (error.msg if isinstance(error, SyntaxError) else str(error)).splitlines() or ["nested too deeply"]
        raise UnusableError(f"{path}: {what} is no Python: {reason[0]}{where}") from error


def import_closure(start: Iterable[tuple[str, Path]], roots: Mapping[str, Path]) -> list[Path]:
    """Sorted files of these modules (dotted name, file) and of everything that they import of the packages.

    roots: of each package that counts, the folder that holds it.

    Raises:
        UnusableError: one of them cannot be read or is no Python.
    """
    waiting, found = list(start), set[Path]()
    while waiting:
        module, path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix != ".py":
            continue
        for name in (module, *_imported(path, module)):
            if own := extensions.split_module_name(name):
                waiting += [(extensions.module_name(file), file) for _, file in _modules(*own)]
            elif root := roots.get(name.partition(".")[0]):
                waiting += _modules(root, name)
        waiting += [(_named(file, roots.values()), file) for file in declared_files(path, module)]
    return sorted(found)


def files_of(*paths: str) -> tuple[Path, ...]:
    """Project files that scripts or modules depend on, by path from the project's root.

    Their own, all that they import of the project, and what any of these loads beside that: files next to a module,
    which it names in a literal FILES, as patterns, and files of extensions, which it names in EXTENDED, as patterns
    from an extension's folder. Of Python among those, what it imports counts too. Paths are absolute.

    Raises:
        UnusableError: one of them cannot be read or is no Python.
    """
    return _made_of(paths, extensions.folders())


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
    return _literals(parse_file(path, f"'{path.stem}'"))


def _literals(tree: ast.Module) -> dict[str, Any]:
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError, TypeError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


@functools.cache
def _modules(root: Path, name: str) -> tuple[tuple[str, Path], ...]:
    """Files of a dotted name and of its enclosing packages, as far as they exist."""
    parts = name.split(".")
    places = [(".".join(parts[:end]), root.joinpath(*parts[:end])) for end in range(1, len(parts) + 1)]
    files = [(one, file) for one, place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return tuple((one, file) for one, file in files if file.is_file())


@functools.cache
def _imported(path: Path, module: str) -> tuple[str, ...]:
    """Names that a file imports and that may be modules; relative names made absolute."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    names: list[str] = []
    for node in _read(path, module)[0]:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        else:
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(names)


@functools.cache
def _read(path: Path, module: str) -> tuple[list[ast.Import | ast.ImportFrom], tuple[str, ...], tuple[str, ...]]:
    """A file's import statements, its FILES, and its EXTENDED."""
    tree = parse_file(path, f"module '{module}'")
    found = [node for node in _executed(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    files, extended = (_literals(tree).get(name, ()) for name in ("FILES", "EXTENDED"))
    listed = files if isinstance(files, tuple | list) else [None]
    if not all(isinstance(one, str) and one and not one.startswith("/") for one in listed):
        raise UnusableError(f"{path}: FILES = {files!r} of module '{module}' holds no patterns of files beside it")
    return found, tuple(files), tuple(extended)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Statements of a tree that run, without those for type checkers; expressions are skipped for speed."""
    for part in ("body", "handlers", "cases", "orelse", "finalbody"):
        for node in getattr(tree, part, ()):
            if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                yield node
                yield from _executed(node)


def declared_files(path: Path, module: str = "") -> tuple[Path, ...]:
    """The files that a module names in FILES and EXTENDED; module: its dotted name, for what is wrong with it."""
    return (*_files_beside(path, module), *extensions.files(*_read(path, module or path.stem)[2]))


@functools.cache
def _files_beside(path: Path, module: str) -> tuple[Path, ...]:
    return tuple(
        file.resolve() for pattern in _read(path, module or path.stem)[1] for file in sorted(path.parent.glob(pattern))
    )


def _named(path: Path, roots: Iterable[Path]) -> str:
    """Dotted name by which a file is imported from one of the folders; its bare name if none contains it."""
    if own := extensions.module_name(path):
        return own
    for root in roots:
        if path.is_relative_to(root):
            return ".".join(path.relative_to(root).with_suffix("").parts)
    return path.stem
