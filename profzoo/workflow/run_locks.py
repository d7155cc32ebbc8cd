"""Adds the owning run to Snakemake's locks, so that the next run removes the lock of a killed run.

Snakemake's own locks name no owner: users have to remove the lock of a killed run by hand (9.27). Here the first line
of each lock names its run. The lock is removed once that run has ended.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

# Imported first: Snakemake's modules import each other and load only in this order.
import snakemake.cli
from snakemake.exceptions import LockException, WorkflowError
from snakemake.persistence.file import FilePersistence

from profzoo.errors import first_error_line
from profzoo.machine import file_locks
from profzoo.machine.file_locks import Owner
from profzoo.workflow import snakemake_internals

# DAG setting of a workflow: whether to make the incomplete files of a killed job again.
INCOMPLETE = "force_incomplete"
# Below Snakemake's own folder: one file per run that holds locks, and a file that is locked while locks change.
OWNERS, CHANGING = "profzoo/owners", "profzoo/locks.changing"
MARK = "# held by profzoo's run "
LOCKS = "[0-9]*.*put.lock"
# Classes of Snakemake that this module needs; without them Snakemake's own locks stay in use.
OWNED = ("snakemake.persistence.file.FilePersistence", "snakemake.workflow", "snakemake.settings.types.DAGSettings")


def take_over(incomplete: bool) -> None:
    """Let the next run continue after a killed run, without questions to the user.

    incomplete: whether to make the incomplete files of a killed job again, whatever the options say.
    """
    if lacking := snakemake_internals.find_missing(OWNED):
        print(
            f"profzoo: warning: Snakemake {snakemake.__version__} has no {', '.join(lacking)}: after a run that was "
            "killed, type `snakemake --unlock`, and --rerun-incomplete with the next run",
            file=sys.stderr,
        )
        return
    Persistence.again = incomplete
    snakemake.workflow.FilePersistence = Persistence


class Persistence(FilePersistence):
    """Snakemake's persistence, with locks that name their owner."""

    again: ClassVar[bool] = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._held: tuple[Owner, int] | None = None
        # Files whose records by Snakemake cannot be read.
        self._damaged: set[str] = set()
        # Owner of the run that holds a requested file, once one is found.
        self._holder: Owner | None = None
        super().__init__(*arguments, **named)
        if self.again and self.dag is not None:
            setattr(self.dag.workflow.dag_settings, INCOMPLETE, True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock as Snakemake does, but check for locks and write the own locks in one atomic step.

        Raises:
            WorkflowError: another run makes the same files; the message names the run if the lock does.
        """
        try:
            with self._changing():
                self._remove_left()
                if self.locked:
                    raise WorkflowError(_refused(self._holder)) if self._holder else LockException()
                self._write_locks("input", map(str, self.all_inputfiles()))
                self._write_locks("output", map(str, self.all_outputfiles()))
            yield
        finally:
            self.unlock()

    def cleanup_locks(self) -> None:
        """Remove all locks of any owner, as requested by the user."""
        super()._delete_locks()

    def _read_locks(self) -> Iterator[tuple[str, str]]:
        """Yield locks whose run is alive or may be alive."""
        for path, owner, files in self._found():
            if owner is None or not file_locks.is_gone(owner, self._owners):
                self._holder = owner
                yield from ((path.name.split(".")[1], file) for file in files)

    def _read_record(self, key: str) -> Any:
        """Read Snakemake's own record of a file; a damaged one counts as none, because this workflow has its own."""
        try:
            return super()._read_record(key)
        except (OSError, ValueError) as error:
            if key not in self._damaged:
                self._damaged.add(key)
                print(f"profzoo: Snakemake's record of {key} is damaged and not used: {_first(error)}", file=sys.stderr)
            return None

    def _remove_left(self) -> None:
        """Remove the locks of runs that have ended."""
        removed = set[Owner]()
        for path, owner, _ in self._found():
            if owner and file_locks.is_gone(owner, self._owners):
                path.unlink()
                removed.add(owner)
        for owner in removed:
            print(f"profzoo: removed the lock of a run that was killed: {owner}", file=sys.stderr)
        # Remove the owners' files last, as they identify the owners of the locks.
        file_locks.remove_dead_owners(self._owners)

    def _found(self) -> Iterator[tuple[Path, Owner | None, list[str]]]:
        """Yield each lock with its owner (None if it names none) and its locked files."""
        for path in sorted(Path(self.path, "locks").glob(LOCKS)):
            with contextlib.suppress(FileNotFoundError):
                first, *files = lines = path.read_text(errors="replace").split("\n")
                told = first.startswith(MARK)
                owner = file_locks.parse_owner(first.removeprefix(MARK)) if told else None
                yield path, owner, [*map(str.strip, files if told else lines)]

    def _write_locks(self, lock_type: str, keys: Iterable[str]) -> None:
        if not (files := list(keys)):
            return
        self._held = self._held or file_locks.start_owner(self._owners)
        # Another run that ends may have removed the folder.
        Path(self.path, "locks").mkdir(exist_ok=True)
        super()._write_locks(lock_type, [f"{MARK}{file_locks.format_owner(self._held[0])}", *files])

    def _delete_locks(self) -> None:
        """Remove only this run's locks; Snakemake would also remove the locks of other runs in this folder."""
        for path in self._lockfile.values():
            Path(path).unlink(missing_ok=True)
        self._lockfile.clear()
        if self._held:
            owner, descriptor = self._held
            Path(self._owners, owner.file).unlink(missing_ok=True)
            os.close(descriptor)
            self._held = None

    @property
    def _owners(self) -> Path:
        return Path(self.path, OWNERS)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Exclude other runs in this folder from reading, writing and removing locks while the body runs."""
        path = Path(self.path, CHANGING)
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_locks.hold_lock(path):
            yield


def _first(error: Exception) -> str:
    return first_error_line(OSError(error.strerror) if isinstance(error, OSError) and error.strerror else error)


def _refused(owner: Owner) -> str:
    advice = "wait until it has ended, or stop it"
    if not file_locks.is_on_this_host(owner):
        advice += "; if it was killed there, start the next run there, or type `snakemake --unlock`"
    return f"another run makes the same files in this folder, {owner}: {advice}"
