"""Locks a results folder for one run of snakemake at a time, across working folders and hosts.

Only the main process of a run holds the lock, and jobs do not hold it. The lock therefore ends with the main process.
"""

import atexit
import datetime
import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profzoo.errors import ConfigError
from profzoo.machine import file_locks

NAME = ".profzoo.lock"
# Characters of a lock file's text that are shown.
LONGEST = 1000
UNPROTECTED = "nothing keeps two runs from using it at once: start one at a time there"
ADVICE = "wait until it has ended or stop it, or give this run other results (pathvars: {results: FOLDER})"


@dataclass(frozen=True)
class FolderState:
    """State of a results folder when a run was planned.

    holder: text about the run that holds its lock, or None. changed_ns: time of its last change in ns, or None.
    """

    holder: str | None
    changed_ns: int | None


def inspect_folder(results: Path) -> FolderState:
    """Return the folder's present state; a plan is useless if another run changes the folder meanwhile."""
    path = results / NAME
    try:
        os.close(file_locks.acquire_lock(path, wait=False, create=False))
    except BlockingIOError:
        return FolderState(_holder(path), None)
    except OSError:
        # The lock file does not exist or cannot be locked; `lock_results` reports that.
        pass
    return FolderState(None, _changed_ns(results))


def lock_results(results: Path, planned: FolderState) -> str | None:
    """Lock the folder until this process ends; return a warning for the user, or None.

    planned: state of the folder when this run was planned.

    Raises:
        ConfigError: another run holds the lock or has changed the folder since this run was planned, or the lock file
            cannot be written.
    """
    path = results / NAME
    if planned.holder:
        raise ConfigError(f"{results} is in use by another run, {planned.holder}: {ADVICE}")
    if planned.changed_ns != _changed_ns(results):
        raise ConfigError(f"another run has used {results} while this one was planned: run it again")
    try:
        results.mkdir(parents=True, exist_ok=True)
        descriptor = file_locks.acquire_lock(path, wait=False)
        since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        said = {"host": socket.gethostname(), "pid": os.getpid(), "since": since, "folder": str(Path.cwd())}
        file_locks.replace_text(descriptor, json.dumps(said))
    except BlockingIOError:
        raise ConfigError(f"{results} is in use by another run, {_holder(path)}: {ADVICE}") from None
    except OSError as error:
        refused = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        raise ConfigError(f"{results} cannot be locked for this run: {refused}") from error
    atexit.register(_release, results.absolute(), descriptor, os.getpid())
    if why := file_locks.explain_missing_locks(descriptor):
        return f"{results} is on a file system without locks ({why}), so that {UNPROTECTED}"
    return None


def _release(results: Path, descriptor: int, process: int) -> None:
    """Remove the lock file, and the folder if it is then empty."""
    # This also runs when a process ends that was forked from the holder, which must not remove the lock.
    if os.getpid() != process:
        return
    with suppress(OSError):
        # The file may be another run's, created after this run's file was removed.
        if file_locks.is_same_file(descriptor, results / NAME):
            (results / NAME).unlink()
            results.rmdir()
    os.close(descriptor)


def _holder(path: Path) -> str:
    """Return a text about the holder of a lock, from the lock file, which may still be empty."""
    try:
        said = json.loads(file_locks.read_lock(path))
        words = f"process {said['pid']} on {said['host']} in {said['folder']}, since {said['since']}"
    except PermissionError:
        return "whose lock file names no process"
    except (OSError, ValueError, KeyError, TypeError):
        return "which has just started"
    # Any user may have written this text.
    return "".join(letter for letter in words[:LONGEST] if letter.isprintable())


def _changed_ns(results: Path) -> int | None:
    return results.stat().st_mtime_ns if results.exists() else None
