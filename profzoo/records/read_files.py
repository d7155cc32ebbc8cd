"""Describes what a measured program read and listed by itself, and finds what of it has changed since.

A file is known by its digest. A large file, and a folder of many opened files, are known by sizes and times of
modification; a listed folder by the names in it. What the program itself writes or removes is not an input of it.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from profzoo.records import digests

# What a record holds of a path: a text, or the names in a folder.
PathState = str | Sequence[str]
# Kinds of notes, as profzoo/harness/observed_files.py writes them.
OPENED, ABSENT, IN_USE, WRITTEN, LISTED, MANY = "opened", "absent", "in use", "written", "listed", "many"
# Larger files are known by size and time.
LARGE_BYTES = 1 << 26
# So many names of a folder are kept, and a digest of more; and so many names of written files.
MOST_NAMES, MOST_WRITTEN = 100, 1000
# What runs of profzoo make in the working folder.
OF_RUNS = ("results", "runs")
GONE, FOLDER = "absent", "a folder"


@dataclass(frozen=True)
class ReadFiles:
    """What a program read; paths are relative to the working folder if they lie below it.

    read: what each path was. written: files that the program wrote or removed. changed: files that changed while it
    ran, and that it did not write.
    """

    read: Mapping[str, PathState] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Notes:
    """Notes of a job's processes: for each kind, paths with what was noted about them."""

    kinds: Mapping[str, Mapping[str, str]]

    @cached_property
    def filled(self) -> set[str]:
        """Folders in which the program writes or removes files, so that their names are its own."""
        return {os.path.dirname(path) for path in self.kinds[WRITTEN]}  # noqa: PTH120

    @cached_property
    def many(self) -> set[str]:
        """Folders that are known as a whole."""
        return set(self.kinds[MANY]) - self.filled

    def files(self) -> set[str]:
        """Files that are known one by one; a file that a library used and that has changed since is the program's."""
        moved = {path for path, about in self.kinds[IN_USE].items() if _about(path) != about}
        found = {*self.kinds[OPENED], *self.kinds[ABSENT], *self.kinds[IN_USE]} - {*self.kinds[WRITTEN]}
        found -= moved - {*self.kinds[OPENED]}
        return {path for path in found if os.path.dirname(path) not in self.many or path.endswith(".py")}  # noqa: PTH120

    def changed(self) -> set[str]:
        """Files that were opened, and were changed since by others."""
        opened = {path: about for path, about in self.kinds[OPENED].items() if path not in self.kinds[WRITTEN]}
        return {path for path, about in opened.items() if _about(path) != about}


def read_notes(folder: Path) -> Notes:
    """Read the notes of a job's processes, one file each; folder: may be missing.

    Raises:
        OSError: the notes cannot be read.
    """
    kinds: dict[str, dict[str, str]] = {kind: {} for kind in (OPENED, ABSENT, IN_USE, WRITTEN, LISTED, MANY)}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        for line in os.fsdecode(file.read_bytes()).splitlines():
            kind, _, rest = line.partition("\t")
            about, _, path = rest.partition("\t")
            # What the first process saw; a line may have been cut.
            if path and kind in kinds:
                kinds[kind].setdefault(path, about)
    return Notes(kinds)


def note_named(folder: Path, files: Iterable[Path]) -> None:
    """Note files that a command names, before it starts; folder: of the notes.

    Raises:
        OSError: the notes cannot be written.
    """
    paths = [str(path.absolute()) for path in files]
    lines = [f"{IN_USE}\t{_about(path)}\t{os.path.normpath(path)}\n" for path in paths if "\n" not in path]
    (folder / "command").write_bytes(os.fsencode("".join(lines)))


def describe_notes(notes: Notes, known: Collection[str] = ()) -> ReadFiles:
    """Return what notes of all processes of a job come to.

    known: real paths of files and folders that the record holds otherwise.
    """
    folders = tuple(f"{path}/" for path in known)

    def counts(path: str) -> bool:
        real = os.path.realpath(path)
        return real not in known and not f"{real}/".startswith(folders)

    whole = {path for path in {*notes.kinds[LISTED], *notes.many} - notes.filled if counts(path)}
    read: dict[str, PathState] = {path: describe_file(Path(path)) for path in notes.files() if counts(path)}
    read |= {path: describe_folder(Path(path), path in notes.many) for path in whole}
    return ReadFiles(
        {_relative(path): read[path] for path in sorted(read)},
        tuple(sorted(map(_relative, notes.kinds[WRITTEN])))[:MOST_WRITTEN],
        tuple(sorted(_relative(path) for path in notes.changed() if counts(path))),
    )


def describe_file(path: Path) -> str:
    """Return what a record holds of a file: its digest, or the size and time of a large one.

    >>> describe_file(Path("no such file"))
    'absent'
    """
    try:
        found = path.stat()
        if found.st_size > LARGE_BYTES:
            return f"{found.st_size} bytes, changed at {found.st_mtime_ns} ns"
        return FOLDER if path.is_dir() else f"sha256:{digests.compute_digest(path)}"
    except OSError:
        return GONE


def describe_folder(path: Path, sizes: bool = False) -> PathState:
    """Return what a record holds of a folder: the visible names in it, or a digest of many names.

    sizes: a digest of names, sizes and times of modification.
    """
    try:
        with os.scandir(path) as entries:
            found = sorted((one for one in entries if _counts(one, path)), key=lambda one: one.name)
            if sizes:
                facts = [f"{one.name}\0{one.stat().st_size}\0{one.stat().st_mtime_ns}" for one in found]
                return f"{len(found)} files by size and time: {digests.text_digest(json.dumps(facts))}"
    except OSError:
        return GONE
    names = [one.name for one in found]
    return names if len(names) <= MOST_NAMES else f"{len(names)} names: {digests.text_digest(json.dumps(names))}"


def find_changes(
    read: Mapping[str, PathState], own: Callable[[], Collection[str]] = tuple
) -> Iterator[tuple[str, str]]:
    """Yield what a program read and what is another now: the path, and the difference in a few words.

    own: asked for files that jobs of the same cell write; these are not inputs.
    """
    for path, then in read.items():
        now = _describe_like(then, Path(path))
        if now != then and path not in own():
            yield from ((path, words) for words in _describe_change(path, then, now, own()))


def _describe_like(then: PathState, path: Path) -> PathState:
    """Describe a path in the way in which it was described before."""
    if isinstance(then, str) and (then.startswith(("sha256:", GONE, FOLDER)) or " bytes, " in then):
        return describe_file(path)
    return describe_folder(path, isinstance(then, str) and " by size and time" in then)


def _describe_change(path: str, then: PathState, now: PathState, own: Collection[str]) -> Iterator[str]:
    """Say in a few words each what has changed; nothing if all of it is the program's own."""
    if isinstance(then, str) or isinstance(now, str):
        if GONE in (then, now):
            yield f"{path}, which it {'read' if now == GONE else 'looked for'}, is {'gone' if now == GONE else 'new'}"
        elif " by size and time" in str(then):
            yield f"files in {path}, which it read, have changed (many are known by size and time)"
        elif " bytes, " in str(then):
            yield f"{path}, which it read, has changed (a large file is known by size and time)"
        else:
            yield f"{path}, which it {'read' if str(then).startswith('sha256:') else 'listed'}, has changed"
        return
    for names, words in ((set(now) - set(then), "new"), (set(then) - set(now), "gone")):
        changed = sorted(os.path.normpath(f"{path}/{name}") for name in names)
        yield from (f"{name} is {words} in a folder that it listed" for name in changed if name not in own)


def _counts(entry: "os.DirEntry[str]", folder: Path) -> bool:
    """Whether a name in a folder counts: neither a hidden one, nor bytecode, nor what runs of profzoo make."""
    made = entry.name in OF_RUNS and folder.resolve() == Path.cwd()
    return not entry.name.startswith(".") and entry.name != "__pycache__" and not made


def _relative(path: str) -> str:
    """Return a path relative to the working folder where it lies below it, else the path itself."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def _about(path: str) -> str:
    """Size and time of a file, as notes have them; empty if it is gone."""
    with suppress(OSError):
        found = Path(path).stat()
        return f"{found.st_size} {found.st_mtime_ns}"
    return ""
