"""Replaces files safely: writes them elsewhere, syncs them to disk (fsync), and then renames them.

Without the sync, a file system may rename a file before it writes the content. A power loss then leaves an empty file.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# What file systems say that cannot sync a folder.
NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)


def write_synced(path: Path, content: str | bytes) -> None:
    """Replace a file's content, completely or not at all.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            # A temporary file is its owner's alone, and what it becomes is as readable as any other file.
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.fsync(file.fileno())
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    _sync_one(path.parent)


def move_into_place(pairs: Iterable[tuple[Path, Path]]) -> None:
    """Move files and folders into place in this order; a folder replaces an existing one.

    All content is on the disk before the first file is moved, and all new names are before this returns.

    pairs: present and final path of each file or folder, on the same file system.

    Raises:
        OSError: a file or folder does not exist, or cannot be moved.
    """
    moves = list(pairs)
    for source, _ in moves:
        sync_to_disk(source)
    for source, target in moves:
        if source.is_dir() and target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        source.replace(target)
    for folder in dict.fromkeys(target.parent for _, target in moves):
        _sync_one(folder)


def sync_to_disk(path: Path) -> None:
    """Sync a file, or a folder and the files directly in it, to disk.

    Raises:
        OSError: the disk reports a failure.
    """
    for file in (*(one for one in path.iterdir() if one.is_file()), path) if path.is_dir() else (path,):
        _sync_one(file)


def _sync_one(path: Path) -> None:
    """Sync one file's content, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def _umask() -> int:
    """Current umask, read from /proc: the system call can only read it by changing it for all threads."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    return 0o022
