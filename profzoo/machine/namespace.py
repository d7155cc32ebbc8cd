"""Runs a program in a PID namespace of its own, if the kernel allows it: no other process is visible to it.

A profiler then records no name, command line or environment of other processes. When the first process of the namespace
ends, the kernel ends all others.
"""

import ctypes
import os
import select
import signal
import time
from pathlib import Path
from typing import NoReturn

from profzoo.machine import process_tree

# Flags of unshare(2) and mount(2).
NEWNS, NEWUSER, NEWPID = 0x00020000, 0x10000000, 0x20000000
NOSUID, NODEV, NOEXEC, REC, PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000
# Seconds that remaining processes get after the program has ended, and seconds between two looks.
STAY_S, PAUSE_S = 2.0, 0.02
IGNORED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_libc = ctypes.CDLL(None, use_errno=True)


def why_unavailable() -> str | None:
    """Reason why no namespace can be created here; None if one can."""
    process = os.fork()
    if not process:
        os._exit(_tried())
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return os.strerror(code) if code else None


def _tried() -> int:
    """Try to create a namespace; returns 0 or the error number."""
    try:
        _unshare()
        inner = os.fork()
        if inner:
            return os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        _mount()
    except OSError as error:
        os._exit(error.errno or 1)
    os._exit(0)


def enter_namespace() -> None:
    """Continue as a process of a new namespace; call it just before exec, in a process without threads.

    The calling process stays behind and ends with the exit code of the program, or with 128 plus the number of the
    signal that ended it.

    Raises:
        OSError: the kernel does not allow it.
    """
    _unshare()
    ended, alive = os.pipe()
    first = os.fork()
    if first:
        _follow(first, alive)
    os.close(alive)
    _die_with_parent(ended)
    _mount()
    program = os.fork()
    if program:
        _look_after(program)
    # The process group of the caller has no number in this namespace.
    os.setsid()


def _unshare() -> None:
    """Make the next child the first process of a new PID namespace; unless root, of a user namespace as well."""
    if not _libc.unshare(NEWPID | NEWNS):
        return
    user, group = os.getuid(), os.getgid()
    _check(_libc.unshare(NEWUSER | NEWPID | NEWNS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _mount() -> None:
    """Mount /proc for this namespace and its processes alone."""
    _check(_libc.mount(b"none", b"/", None, REC | PRIVATE, None))
    _check(_libc.mount(b"proc", b"/proc", b"proc", NOSUID | NODEV | NOEXEC, None))


def _check(failed: int) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _die_with_parent(ended: int) -> None:
    """End with the parent; ended: a pipe whose other end the parent holds, as its PID is not visible here."""
    process_tree.die_with_parent()
    waiting = select.poll()
    waiting.register(ended)
    if waiting.poll(0):
        os._exit(128 + signal.SIGKILL)
    os.close(ended)


def _stay_behind(but: int = -1) -> None:
    """Close inherited descriptors: locks, and the pipe that says whether the program began."""
    os.closerange(3, but)
    os.closerange(max(but + 1, 3), os.sysconf("SC_OPEN_MAX"))
    # This process must not run the caller's signal handlers.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


def _follow(first: int, alive: int) -> NoReturn:
    _stay_behind(but=alive)
    os._exit(_code(os.waitpid(first, 0)[1]))


def _look_after(program: int) -> NoReturn:
    """Act as init (PID 1) of the namespace: reap orphans; all of them end when this process ends."""
    _stay_behind()
    code, until = None, 0.0
    while code is None or time.monotonic() < until:
        try:
            process, status = os.waitpid(-1, 0 if code is None else os.WNOHANG)
        except ChildProcessError:
            break
        if process == program:
            code, until = _code(status), time.monotonic() + STAY_S
        elif not process:
            time.sleep(PAUSE_S)
    os._exit(code or 0)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


# Counts processes that the kernel killed for lack of memory.

COUNTS = Path("/proc/vmstat")


def count_oom_kills() -> int:
    """Number of out-of-memory kills on this machine since boot, in any memory group; 0 if unknown.

    The count covers all jobs, so a higher count says little about a job whose processes were not killed.
    """
    try:
        counts = dict(line.split() for line in COUNTS.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(counts.get("oom_kill", 0))
