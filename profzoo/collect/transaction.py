"""Makes a job's files in a private folder, and then moves all of them into place or none.

The private folder lies in a hidden folder beside the files. A claim file there names the job that last began to make
them. Only this job moves its files into place: an older job, left over from a killed snakemake, cannot.
"""

import datetime
import json
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypedDict, cast

from profzoo.errors import CollectError
from profzoo.machine import file_locks
from profzoo.records import atomic_writes, record

CLAIM = "claim.json"
# nsys silently writes no export to a path with quotes, `&`, or a `%` that it reads as one of its own macros.
PLAIN = re.compile(r"[\w./@+=,-]+", re.ASCII)
# Prefix of a job's private folder; prefix of the folder of its link, and name of the link.
RUN = re.compile(r"[0-9a-f]{12}")
PREFIX, LINK = "profzoo-", "made"


class SupersededError(CollectError):
    """Another job has started to make the same files, or has made them."""


class Claim(TypedDict, total=False):
    """Which job last began to make the files; another program may have written the file."""

    run: str
    host: str
    pid: int
    # Start in UTC (ISO 8601).
    since: str
    # Folder of the link to the private folder, where a tool accepts only plain paths.
    link: str | None


@dataclass(frozen=True)
class Transaction:
    """A job's files while it makes them.

    run: name of this attempt. made: final paths, and private: current paths, both by the names of the rule's outputs
    including `sidecar`. folder: real path of the private folder.
    """

    run: str
    made: Mapping[str, Path]
    private: Mapping[str, Path]
    folder: Path

    def final(self, word: str) -> str:
        """Replace private paths in a command's word by the final paths."""
        for name, path in sorted(self.private.items(), key=lambda item: -len(str(item[1]))):
            word = word.replace(str(path), str(self.made[name]))
        return word

    def commit(self) -> None:
        """Move the files into place, the sidecar last, as files without a sidecar do not count.

        Raises:
            SupersededError: another job has started to make the files, or the private folder is gone; no file is
                changed.
        """
        with self._claim():
            sidecar = self.made["sidecar"]
            for path in self.made.values():
                # Their sidecar is found by their own name, else by word of it.
                if path.with_name(f"{path.name}.json") != sidecar and path != sidecar:
                    record.refer_to_record(path, sidecar, sidecar=True)
            sidecar.unlink(missing_ok=True)
            names = sorted(self.made, key=lambda name: name == "sidecar")
            atomic_writes.move_into_place((self.folder / self.made[name].name, self.made[name]) for name in names)

    def check(self) -> None:
        """Check that no other job has started to make the files since.

        Raises:
            SupersededError: another job has started to make the files.
        """
        with self._claim():
            pass

    @contextmanager
    def _claim(self) -> Iterator[None]:
        """Lock the claim while the body runs, and check that it is this job's."""
        try:
            _check(self.folder.parent)
            descriptor = file_locks.acquire_lock(self.folder.parent / CLAIM, wait=True, create=False)
        except FileNotFoundError:
            self._drop({})
        try:
            claim = _claimed(descriptor)
            if claim.get("run") != self.run or not _is_folder(self.folder):
                self._drop(claim)
            yield
        finally:
            os.close(descriptor)

    def _drop(self, claim: Claim) -> NoReturn:
        what = self.made["sidecar"].with_suffix("")
        if claim.get("run") in (None, self.run):
            why = f"{self.folder} was removed, probably by a later job that has made the same"
        else:
            why = f"process {claim.get('pid')} on {claim.get('host')} began to make it at {claim.get('since')}"
        raise SupersededError(
            f"{what} is left as it is, and the results of this job (run {self.run}) are dropped: {why}"
        )


def private_home(sidecar: Path) -> Path:
    """Hidden folder shared by the jobs that make this sidecar and its files.

    >>> private_home(Path("results/lstm/train.time.csv.json"))
    PosixPath('results/lstm/.train.time.csv.making')
    """
    return sidecar.with_name(f".{sidecar.stem}.making")


@contextmanager
def begin(made: Mapping[str, Path], one_node: bool = True) -> Iterator[Transaction]:
    """Yield a private folder for these files; earlier jobs that make the same files lose their folders.

    made: final paths in one folder, by output name. one_node: whether all processes of the job run on this node.
    """
    place, run = private_home(made["sidecar"]), secrets.token_hex(6)
    folder = place / run
    with _locked(place) as descriptor:
        _forget(place, _claimed(descriptor))
        try:
            way = _claim(descriptor, folder, one_node)
        except OSError:
            # For example, the disk is full.
            _leave(place, {})
            raise
    work = Transaction(run, made, {name: way / path.name for name, path in made.items()}, folder)
    try:
        yield work
    except Exception:
        # A superseded job's files are gone, which may be the cause of its error.
        work.check()
        raise
    finally:
        _end(place, run)


def _claim(descriptor: int, folder: Path, one_node: bool) -> Path:
    """Make a job's folder and claim the files for it; returns the path to the folder."""
    folder.mkdir()
    way, link = _way(folder) if one_node else (folder, None)
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    said: Claim = {"run": folder.name, "host": socket.gethostname(), "pid": os.getpid(), "since": since, "link": link}
    try:
        file_locks.replace_text(descriptor, json.dumps(said))
    except OSError:
        _unlink(place=folder.parent, claim=said)
        raise
    return way


def _end(place: Path, run: str) -> None:
    """Remove a job's remaining files; the claim only if no other job has followed."""
    # By now the folder may be removed, or replaced by a link to somebody else's folder.
    if not _is_folder(place):
        return
    with suppress(FileNotFoundError), file_locks.hold_lock(place / CLAIM) as descriptor:
        claim = _claimed(descriptor)
        if claim.get("run", run) == run:
            _leave(place, claim)
        else:
            shutil.rmtree(place / run, ignore_errors=True)


def _leave(place: Path, claim: Claim) -> None:
    """Remove everything below the transaction folder, unless another job uses it; the claim is locked."""
    _forget(place, claim)
    # Another job may start at this moment.
    with suppress(OSError):
        (place / CLAIM).unlink()
        place.rmdir()


def _forget(place: Path, claim: Claim) -> None:
    """Remove the private folders of earlier jobs, and the last one's link if it ran on this host."""
    owners = (os.geteuid(), place.lstat().st_uid)
    for path in place.iterdir():
        with suppress(OSError):
            found = path.lstat()
            if RUN.fullmatch(path.name) and stat.S_ISDIR(found.st_mode) and found.st_uid in owners:
                shutil.rmtree(path, ignore_errors=True)
    if claim.get("host") == socket.gethostname():
        _unlink(place, claim)


def _unlink(place: Path, claim: Claim) -> None:
    """Remove a job's link and its target, after checking that the target is the job's: claims may be forged."""
    link, run = claim.get("link"), claim.get("run")
    if not isinstance(link, str) or not isinstance(run, str) or not Path(link).name.startswith(PREFIX):
        return
    with suppress(OSError, ValueError):
        folder = os.open(link, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            own = os.fstat(folder).st_uid == os.geteuid()
            if own and Path(os.readlink(LINK, dir_fd=folder)).parts[-2:] == (place.name, run):
                os.unlink(LINK, dir_fd=folder)
                Path(link).rmdir()
        finally:
            os.close(folder)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _check(place: Path) -> None:
    """Check that the path is a folder and not a link, which could lead into somebody's folder.

    Raises:
        FileNotFoundError: the path does not exist.
        CollectError: the path is a link or a file.
    """
    if not _is_folder(place):
        found = place.lstat()
        raise CollectError(
            f"{place} is {file_locks.describe_file_kind(found)}, where a job needs a folder of its own: remove it"
        )


@contextmanager
def _locked(place: Path) -> Iterator[int]:
    """Lock the claim file while the body runs, and create it if it is missing."""
    descriptor = None
    while descriptor is None:
        with suppress(FileExistsError):
            place.mkdir(parents=True)
        # An ending job may remove the folder meanwhile.
        with suppress(FileNotFoundError):
            _check(place)
            descriptor = file_locks.acquire_lock(place / CLAIM, wait=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _claimed(descriptor: int) -> Claim:
    """Read the claim; empty if it was not written completely."""
    try:
        claim = json.loads(file_locks.read_text(descriptor))
    except (ValueError, RecursionError):
        return {}
    return cast(Claim, claim) if isinstance(claim, dict) else {}


def _way(folder: Path) -> tuple[Path, str | None]:
    """Path to the folder that every tool accepts, and the folder of the link it uses, if it needs one."""
    if PLAIN.fullmatch(str(folder.absolute())):
        return folder, None
    there = next(place for place in (tempfile.gettempdir(), "/tmp") if PLAIN.fullmatch(place))
    link = Path(tempfile.mkdtemp(prefix=PREFIX, dir=there)) / LINK
    link.symlink_to(folder.absolute())
    return link, str(link.parent)
