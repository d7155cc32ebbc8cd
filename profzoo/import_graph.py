"""Finds the project files that a Python file imports, directly or not, by parsing import statements only."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from profzoo import extensions, import_statements
from profzoo.import_statements import Statements

# Itself, also where a job imports it through links.
PROJECT = Path(__file__).resolve().parents[1]
# The folder that holds each package of the project.
PACKAGES = {"models": PROJECT, "profzoo": PROJECT}


def import_closure(start: Iterable[tuple[str, Path]], roots: Mapping[str, Path]) -> list[Path]:
    """Sorted files of these modules (dotted name, file) and of everything that they import of the packages.

    roots: of each package that counts, the folder that holds it.

    Raises:
        UnusableError: one of them cannot be read or is no Python.
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
    return import_statements.literals(import_statements.parse_file(path, f"'{path.stem}'"))


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
    return import_statements.read_statements(path, module)


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
