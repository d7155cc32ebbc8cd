"""Locks a results folder for one run of snakemake at a time, across working folders and hosts.

Only the run's main process holds the lock, so jobs do not hold it, and it ends with the main process.
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
# Of what a lock says.
LONGEST = 1000
UNPROTECTED = "nothing keeps two runs from using it at once: start one at a time there"
ADVICE = "wait until it has ended or stop it, or give this run other results (pathvars: {results: FOLDER})"


@dataclass(frozen=True)
class FolderState:
    """State of a results folder when a run was planned: its holder in words, and its last change."""

    holder: str | None
    changed_ns: int | None


def inspect_folder(results: Path) -> FolderState:
    """Inspect the folder now; a plan made while another run changed it is of no use."""
    path = results / NAME
    try:
        os.close(file_locks.acquire_lock(path, wait=False, create=False))
    except BlockingIOError:
        return FolderState(_holder(path), None)
    except OSError:
        # There is none, or nothing that can be locked; whoever takes it will know.
        pass
    return FolderState(None, _changed_ns(results))


def lock_results(results: Path, planned: FolderState) -> str | None:
    """Lock the folder until this process ends; returns a message for the user, or None.

    planned: state of the folder when this run was planned.

    Raises:
        ConfigError: another run holds the lock, or has held it since this run was planned; or it cannot be written.
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
    """Remove the lock, and its folder if that is empty."""
    # A process that was forked from the holder ends too.
    if os.getpid() != process:
        return
    with suppress(OSError):
        # Another run may hold one that came after this was removed.
        if file_locks.is_same_file(descriptor, results / NAME):
            (results / NAME).unlink()
            results.rmdir()
    os.close(descriptor)


def _holder(path: Path) -> str:
    """Text that says who holds a lock, read from the lock file, which may still be empty."""
    try:
        said = json.loads(file_locks.read_lock(path))
        words = f"process {said['pid']} on {said['host']} in {said['folder']}, since {said['since']}"
    except PermissionError:
        return "whose lock file names no process"
    except (OSError, ValueError, KeyError, TypeError):
        return "which has just started"
    # Anybody may have written it.
    return "".join(letter for letter in words[:LONGEST] if letter.isprintable())


def _changed_ns(results: Path) -> int | None:
    return results.stat().st_mtime_ns if results.exists() else None
