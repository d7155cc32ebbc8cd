"""Computes SHA-256 digests of files and folders; unchanged files are not read again.

A file counts as unchanged if its size, its times of modification and of status change, and its inode are the same, and
the machine has not been rebooted. After a power loss, a damaged file may have its old size and times.
"""

import hashlib
import json
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from profzoo.records import atomic_writes

BOOT = Path("/proc/sys/kernel/random/boot_id")
# Smaller files are read as fast as they are looked up.
WORTH_KEEPING_BYTES = 1 << 16
# Two changes within the resolution of a file system's clock leave the same times.
SETTLED_NS = 100_000_000

Key = tuple[int, ...]
_known: dict[Key, str] = {}
# Those that this process has asked for, and those that are kept.
_asked: set[Key] = set()
_kept: set[Key] = set()


def compute_digest(path: Path) -> str:
    """Return the digest of a file's bytes, or of the names and digests of a folder's visible files.

    Raises:
        OSError: the path cannot be read, or is neither a file nor a folder.
    """
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        lines = [f"{file.name}\0{compute_digest(file)}\n" for file in list_members(path)]
        return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is neither a file nor a folder")
    key = _key(status)
    _asked.add(key)
    if found := _known.get(key):
        return found
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED_NS:
        _known[key] = found
    return found


def text_digest(text: str) -> str:
    """Return the digest of a text, prefixed by the kind of digest.

    >>> text_digest("batch")[:17]
    'sha256:4bb24efc96'
    """
    return f"sha256:{hashlib.sha256(text.encode(errors='surrogateescape')).hexdigest()}"


def measure_size(path: Path) -> int:
    """Return the size in bytes of a file, or of a folder's visible files.

    Raises:
        OSError: the path does not exist.
    """
    return sum(map(measure_size, list_members(path))) if path.is_dir() else path.stat().st_size


def list_members(folder: Path) -> list[Path]:
    """Visible files and folders in a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def load_digests(path: Path) -> None:
    """Load digests kept by an earlier process since boot; invalid ones are computed again."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["boot"] == _boot():
            found = {tuple(map(int, key.split())): str(value) for key, value in kept["digests"].items()}
            _known.update(found)
            _kept.update(found)


def save_digests(path: Path) -> None:
    """Save digests of larger files for later processes of this boot."""
    worth = {key: value for key, value in _known.items() if key in _asked and key[2] >= WORTH_KEEPING_BYTES}
    if worth.keys() <= _kept:
        return
    _kept.update(worth)
    content = json.dumps({"boot": _boot(), "digests": {" ".join(map(str, key)): one for key, one in worth.items()}})
    # What cannot be kept is computed anew.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_writes.write_synced(path, content)


def forget_digests() -> None:
    """Clear the cache, so that every file is read again."""
    _known.clear()


def _key(status: os.stat_result) -> Key:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _boot() -> str:
    """Identifier of the current boot; empty if the kernel provides none."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
