"""Identifies the process that holds a lock file, on this host or another, and checks whether it is still alive.

Each owner has a file beside the locks and keeps it locked (flock) as long as it lives. An owner in an unknown state
counts as alive, because taking a lock from a living owner is worse than asking a user.
"""

import contextlib
import datetime
import json
import os
import re
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profzoo.machine import file_locks, process_tree

# File systems that only one kernel can mount at a time, so that owners of another kernel hold no locks there any more.
LOCAL = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
BOOT, MACHINE = Path("/proc/sys/kernel/random/boot_id"), Path("/etc/machine-id")
MOUNTS = Path("/proc/self/mountinfo")
FILE = re.compile(r"[0-9]+-[0-9a-f]{16}")


@dataclass(frozen=True)
class Owner:
    """A process that holds locks.

    process: identity of the process, from process_tree.process_identity. host: name of its host. machine: machine
    identifier of its host (/etc/machine-id). boot: identifier of the kernel's boot. file: name of the file that it
    keeps locked. since: start in UTC (ISO 8601).
    """

    process: str
    host: str
    machine: str
    boot: str
    file: str
    since: str

    def __str__(self) -> str:
        """Describe the owner in words."""
        return f"process {self.process.partition(':')[0]} on {self.host} since {self.since}"


def start_owner(folder: Path) -> tuple[Owner, int]:
    """Register this process as a lock owner; return the owner and the descriptor of its locked file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{secrets.token_hex(8)}"
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    owner = Owner(
        process_tree.process_identity(os.getpid()), socket.gethostname(), _text(MACHINE), _text(BOOT), name, since
    )
    descriptor = file_locks.acquire_lock(folder / name, wait=False)
    file_locks.replace_text(descriptor, format_owner(owner))
    return owner, descriptor


def format_owner(owner: Owner) -> str:
    """Format the owner as one line of text."""
    return json.dumps(asdict(owner))


def parse_owner(text: str) -> Owner | None:
    """Parse an owner from one line; None if the line identifies no process that could be checked."""
    try:
        given: Any = json.loads(text)
        owner = Owner(**given)
    except (ValueError, TypeError):
        return None
    good = all(isinstance(value, str) for value in asdict(owner).values()) and FILE.fullmatch(owner.file)
    return owner if good and re.fullmatch(r"[0-9]+:[0-9]+:[0-9]+", owner.process) else None


def is_gone(owner: Owner, folder: Path) -> bool:
    """Whether an owner with its file in this folder certainly holds no lock there any more."""
    free = _free(folder / owner.file)
    if free is False:
        return False
    if is_on_this_host(owner):
        # This kernel knows its own locks, and its processes as far as this process may see them.
        return not _works_here(owner) if free else _ended(owner)
    # An owner of this machine is gone, because the machine has restarted since. For an owner of another machine, only a
    # local file system proves that: others may keep locks that this host cannot see.
    return (bool(owner.machine) and _here(owner)) or _kind(folder) in LOCAL


def remove_dead_owners(folder: Path) -> None:
    """Remove the files of dead owners from this folder."""
    for path in folder.glob("*"):
        with contextlib.suppress(OSError):
            owner = parse_owner(path.read_text(errors="replace")) if FILE.fullmatch(path.name) else None
            if owner and owner.file == path.name and is_gone(owner, folder):
                path.unlink()


def is_on_this_host(owner: Owner) -> bool:
    """Whether the owner runs under the same kernel boot as this process; if unknown, whether on the same host."""
    boot = _text(BOOT)
    return owner.boot == boot if owner.boot and boot else _here(owner)


def _here(owner: Owner) -> bool:
    return (owner.host, owner.machine) == (socket.gethostname(), _text(MACHINE))


def _free(path: Path) -> bool | None:
    """Whether nobody holds a lock on the file; None if that is unknown."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return file_locks.is_unlocked(descriptor)
    finally:
        os.close(descriptor)


def _ended(owner: Owner) -> bool:
    """Whether a process of this kernel has ended, if this process can see it."""
    if owner.process.rpartition(":")[2] != process_tree.process_identity(os.getpid()).rpartition(":")[2]:
        return False
    try:
        os.kill(int(owner.process.partition(":")[0]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        # The process belongs to another user, and /proc may hide it.
        return False
    return process_tree.process_identity(int(owner.process.partition(":")[0])) != owner.process


def _works_here(owner: Owner) -> bool:
    """Whether a process of this kernel is alive and works in this folder rather than in a copy of it."""
    if _ended(owner):
        return False
    process = owner.process.partition(":")[0]
    if process_tree.process_identity(int(process)) != owner.process:
        # The process is in another PID namespace, and its lock would not be free if it were alive.
        return False
    try:
        return Path(f"/proc/{process}/cwd").samefile(Path.cwd())
    except OSError:
        return True


def _kind(folder: Path) -> str:
    """File system type of a folder; empty if unknown."""
    place, longest, found = os.path.realpath(folder), 0, ""
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
            # If several file systems are mounted at one place, the last one hides the others.
            if len(point) >= longest and f"{place}/".startswith(f"{point.rstrip('/')}/"):
                longest, found = len(point), after.split()[0]
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
