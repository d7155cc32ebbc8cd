"""Copies the states of a program that are judged into private folders, and notices when a copy changes.

A state is a folder, a commit of the current repository, or a patch to the reference. Its code runs from the copy alone,
so that nothing is written where the user works.
"""

import json
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from profzoo.errors import ConfigError
from profzoo.machine import external_programs
from profzoo.records import digests
from profzoo.referee import envelope

GIT, PATCH, COMMAND = "git:", "patch:", "command:"
FORMS = f"a folder, {GIT}COMMIT, or {PATCH}FILE"
MOST_FILES, MOST_BYTES, ARCHIVE_S = 20_000, 2 << 30, 600.0
# Names that no copy has: what is hidden, and what Python and a project's environment leave.
LEFT_OUT = ("__pycache__", "node_modules")
BUILD = re.compile(r"^def build\(", re.MULTILINE)
# Lines of a patch that name a file, or its kind.
NAMED = re.compile(r"^(?:---|\+\+\+|rename from|rename to|copy from|copy to) (?P<name>[^\t\n]+)", re.MULTILINE)
HEADER = re.compile(r"^diff --git (?P<name>.+)$", re.MULTILINE)
LINKED = re.compile(r"^(?:(?:new|deleted) (?:file )?mode|new mode|old mode|index [0-9a-f.]+) 120000$", re.MULTILINE)
# Parts of the package that run around a contestant.
OWN = ("referee", "harness", "experiments", "statistics", "compare", "machine", "records", "op_costs")


@dataclass(frozen=True)
class State:
    """A copied state.

    word: as it was asked for. folder: the copy. module: file of the program, relative to it. digests: of its files.
    command: what runs the program in it, if it is a script.
    """

    word: str
    folder: Path
    module: Path
    digests: dict[str, str]
    command: str = ""


def copy_state(word: str, to: Path, reference: State | None = None, module: str = "", command: str = "") -> State:
    """Copy a state into a new folder, which becomes read-only.

    Args:
        word: a folder, `git:COMMIT` or `patch:FILE`; a patch is applied to the reference. `command:WORDS` is the
            current folder with a command of its own.
        to: the new folder.
        reference: the state that has been copied before; None for the reference itself.
        module: file of the program in the folder; empty for the reference's, or for the only one that defines `build`.
        command: runs the program, which then has no such file.

    Raises:
        ConfigError: there is no such state, or it reaches out of its folder.
    """
    if word.startswith(GIT):
        _extract_commit(word.removeprefix(GIT), to)
    elif word.startswith(PATCH):
        if reference is None:
            raise ConfigError(f"'{word}' is a patch to the reference, and so cannot be the reference: name {FORMS}")
        shutil.copytree(reference.folder, to)
        unlock(to)
        _apply(Path(word.removeprefix(PATCH)), to)
    else:
        _copy_folder(Path("." if word.startswith(COMMAND) else word), to)
    command = word.removeprefix(COMMAND) if word.startswith(COMMAND) else command
    if reference and bool(command) != bool(reference.command):
        raise ConfigError(f"'{reference.word if command else word}' has no command: give it by --command")
    if command:
        _lock(to)
        return State(word, to, Path(), digest_files(to), command)
    chosen = Path(module) if module else reference.module if reference else find_module(to, word)
    if chosen.is_absolute() or ".." in chosen.parts or not (to / chosen).is_file():
        raise ConfigError(f"'{word}' has no file {chosen}: name the program's file by --module, relative to the folder")
    _lock(to)
    return State(word, to, chosen, digest_files(to))


def find_module(folder: Path, word: str) -> Path:
    """Find the only file of a folder, or of its folder `models`, that defines `build(shape)`."""
    found = [
        path.relative_to(folder)
        for place in (folder, folder / "models")
        for path in sorted(place.glob("*.py"))
        if BUILD.search(path.read_text(errors="replace"))
    ]
    if len(found) != 1:
        which = f"several files define it: {', '.join(map(str, found[:5]))}" if found else "no file there does"
        raise ConfigError(f"'{word}': name the file that defines build(shape) by --module; {which}")
    return found[0]


def digest_files(folder: Path) -> dict[str, str]:
    """Return the digest of each file below a folder by its path, hidden ones too; a link's is its target."""
    found = {}
    for path in _walk(folder):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = digests.compute_digest(path)
        else:
            found[name] = "folder" if path.is_dir() else "special"
    return found


def explain_change(before: dict[str, str], after: dict[str, str]) -> str:
    """Say which file differs between two digests of a folder; empty if none does.

    >>> explain_change({"a": "1"}, {"a": "1", "b": "2"}), explain_change({"a": "1"}, {"a": "1"})
    ('b was added', '')
    """
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            return f"{name} {'was added' if name not in before else 'is gone' if name not in after else 'was changed'}"
    return ""


def digest_state(state: State) -> str:
    """Return the digest of a state: of its files, and of which of them or which command is the program."""
    program = state.command or str(state.module)
    return f"sha256:{digests.text_digest(json.dumps([program, state.digests], sort_keys=True))}"


def digest_package() -> dict[str, str]:
    """Return the digests of the referee's own modules."""
    package = Path(__file__).parents[1]
    files = [path for part in OWN for path in (package / part).rglob("*.py")]
    return {str(path.relative_to(package)): digests.compute_digest(path) for path in files}


def remove_copies(folder: Path) -> None:
    """Remove a folder of read-only copies."""
    unlock(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _walk(folder: Path, is_kept: Callable[[Path], bool] = bool) -> Iterator[Path]:
    """Yield everything below a folder that is kept, and enter no link."""
    for path in filter(is_kept, sorted(folder.iterdir())):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, is_kept)


def _lock(folder: Path) -> None:
    for path in [*_walk(folder), folder]:
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o555 if os.access(path, os.X_OK) and _runs(path) else 0o444)


def _runs(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)


def unlock(folder: Path) -> None:
    """Make a read-only copy writable."""
    folder.chmod(0o755)
    for path in _walk(folder):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or _runs(path) else 0o644)


# Ways to get a state.


def _copy_folder(folder: Path, to: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"'{folder}' is not a folder: name {FORMS}")
    copy_folder(folder, to, _is_kept)


def copy_folder(folder: Path, to: Path, is_kept: Callable[[Path], bool], closed: bool = True) -> None:
    """Copy a folder; links that lead into it lead into the copy, so that nothing is written through them.

    is_kept: whether a path is copied, or a folder entered. closed: whether other links, and what is no file, are errors
    and not kept, or left out.

    Raises:
        ConfigError: it holds such a link, or too much.
    """
    home, size, paths = folder.resolve(), 0, list[Path]()
    for path in _walk(folder, is_kept):
        if closed and path.is_symlink() and not path.resolve().is_relative_to(home):
            raise ConfigError(
                f"'{folder}': {path.relative_to(folder)} is a link out of the folder: copy the file there"
            )
        if closed and not (path.is_symlink() or path.is_dir() or path.is_file()):
            raise ConfigError(f"'{folder}': {path.relative_to(folder)} is neither a file nor a folder: remove it")
        paths.append(path)
        size += path.lstat().st_size
        if len(paths) > MOST_FILES or size > MOST_BYTES:
            raise ConfigError(
                f"'{folder}' has more than {MOST_FILES:,} files or {MOST_BYTES >> 30} GiB: take a folder that holds "
                "the program alone"
            )
    to.mkdir(parents=True)
    for path in paths:
        target = to / path.relative_to(folder)
        if path.is_symlink():
            led = path.resolve()
            inside = led.is_relative_to(home)
            target.symlink_to(os.path.relpath(to / led.relative_to(home), target.parent) if inside else led)
        elif path.is_dir():
            target.mkdir()
        elif path.is_file():
            shutil.copy2(path, target)


def _is_kept(path: Path) -> bool:
    return not path.name.startswith(".") and path.name not in LEFT_OUT


def _extract_commit(commit: str, to: Path) -> None:
    extract_commit(commit, to)
    for path in reversed([*_walk(to)]):
        if path.name.startswith("."):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def extract_commit(commit: str, to: Path) -> None:
    """Extract the files of the current folder at a commit into a new folder.

    Raises:
        ConfigError: there is no such commit, or it reaches out of its folder.
    """
    found = find_commit(commit)
    to.mkdir()
    with tempfile.NamedTemporaryFile(suffix=".tar") as packed:
        done = external_programs.ask_git(Path(), "archive", f"--output={packed.name}", found, seconds=ARCHIVE_S)
        if done.returncode:
            raise ConfigError(f"'{GIT}{commit}': {(done.stderr.strip() or 'git archive failed').splitlines()[0]}")
        try:
            with tarfile.open(packed.name) as files:
                unpack(files, to)
        except tarfile.TarError as error:
            raise ConfigError(f"'{GIT}{commit}': {error}: commit no link out of the folder") from None


def find_commit(word: str, repository: Path = Path()) -> str:
    """Return the full name of a commit.

    Raises:
        ConfigError: the repository has no such commit.
    """
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}")
    found = external_programs.ask_git(repository, *words)
    if found.returncode:
        why = f" ({found.stderr.strip().splitlines()[0]})" if found.stderr.strip() else ""
        raise ConfigError(
            f"there is no commit {envelope.quote(word)!r} in {repository.absolute()}{why}: `git log` lists those that "
            "there are; a CI checkout needs fetch-depth: 0"
        )
    return found.stdout.strip()


def unpack(files: tarfile.TarFile, to: Path) -> None:
    """Unpack files that git has archived, without links out of the folder.

    Python before 3.11.4 has no such filter. Then a commit could hold a link, but no file below it.
    """
    files.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
    files.extractall(to)


def _apply(patch: Path, to: Path) -> None:
    """Apply a patch to a copy."""
    try:
        text = patch.read_bytes().decode(errors="replace")
    except OSError as error:
        raise ConfigError(f"'{PATCH}{patch}' cannot be read ({error.strerror}): name {FORMS}") from None
    if outside := find_outside(text):
        raise ConfigError(f"'{PATCH}{patch}' {outside}: make it of files in the program's folder alone")
    own = {"PATH": os.environ.get("PATH", ""), "GIT_CEILING_DIRECTORIES": str(to.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    words = ["git", "apply", "-p1", "--whitespace=nowarn", str(patch.absolute())]
    try:
        done = subprocess.run(words, cwd=to, env=own, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ConfigError(f"there is no git here, which '{PATCH}{patch}' needs: install it, or name a folder") from None
    if done.returncode:
        told = (done.stderr.strip() or "git apply failed").splitlines()[0]
        raise ConfigError(f"'{PATCH}{patch}' does not fit the reference ({told}): make it by `git diff` in its folder")


def find_outside(text: str) -> str:
    r"""Say what in a patch reaches out of the folder that it is applied to; empty if nothing does.

    >>> find_outside("--- a/model.py\n+++ b/model.py\n"), find_outside("--- a/x\n+++ b/../x\n")
    ('', "names '../x'")
    """
    if LINKED.search(text):
        return "makes or changes a symbolic link"
    for match in [*NAMED.finditer(text), *HEADER.finditer(text)]:
        named = match["name"].strip()
        for word in named.split() if match[0].startswith("diff") else [named]:
            name = word.strip('"')
            if name == "/dev/null":
                continue
            name = re.sub(r"^[ab]/", "", name) if re.match(r"[ab]/", name) else name
            if name.startswith("/") or ".." in Path(name).parts or "\\" in name:
                return f"names '{name}'"
    return ""
