"""Sorts calls of the operating system's libraries by what a thread waits for in them."""

import re
from collections.abc import Mapping

# Kinds by the names of their calls, the first that fits; names as nsys writes them, those of glibc and POSIX.
KINDS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "lock": r"(pthread_)?(mutex|rwlock|spin)_.*|sem_.*|flock|lockf.*|fcntl.*",
        "condition": r"pthread_(cond|barrier)_.*|futex.*",
        "thread": r"pthread_(join|create|(timed|try)join_np|clockjoin_np)|wait|waitpid|waitid|wait[34]|v?fork|clone"
        r"|posix_spawnp?|exec.*",
        "sleep": r"(clock_)?nanosleep|u?sleep|pause|sigwait.*|sigsuspend|sched_yield",
        "poll": r"(__)?p?poll(_chk)?|p?select|epoll_.*",
        "socket": r"(recv|accept|connect|bind|listen|shutdown|socket|getaddrinfo).*|send(to|m+sg)?",
        "memory": r"m(un|re)?map.*|mprotect|s?brk|madvise|m(un)?lock(all|2)?|msync|(posix_)?memalign|shm.*",
        "device": r"ioctl",
        "file": r"([fp]?read|[fp]?write|f?open|creat|fdopen|f?close|fflush|fget|fput|(get|put)[csw]|getline|getdelim"
        r"|[fl]?stat|fseek|ftell|lseek|rewind|f?sync|fdatasync|f?truncate|sendfile|splice|tee|pipe|dup|access|rename"
        r"|unlink|mkdir|rmdir|(fd)?opendir|closedir|link|flockfile|v?f?printf|fscanf).*",
    }.items()
}
FILE, OTHER = "file", "other"
# Calls by which another thread ends a wait, by the kind of the wait. nsys does not trace how Python's own locks are let
# go; just before that, a thread takes the interpreter's lock, which signals a condition.
_SIGNALS = re.compile(
    r"pthread_cond_(signal|broadcast)|pthread_(mutex|rwlock|spin)_unlock|pthread_barrier_wait|sem_post"
)
_SENDS = re.compile(r"p?writev?(64)?|fwrite|fflush|send.*|eventfd_write|close|fclose|shutdown|kill|pthread_kill")
WAKING: Mapping[str, re.Pattern[str]] = {
    "lock": _SIGNALS,
    "condition": _SIGNALS,
    "poll": _SENDS,
    "file": _SENDS,
    "socket": _SENDS,
}


def kind_of_call(name: str) -> str:
    """Return the kind of a call by its name; OTHER for a call of none, and empty for no call.

    >>> [kind_of_call(name) for name in ("sem_wait", "pthread_cond_timedwait", "clock_nanosleep", "poll", "read")]
    ['lock', 'condition', 'sleep', 'poll', 'file']
    >>> [kind_of_call(name) for name in ("pthread_mutex_lock", "waitpid", "ioctl", "munmap", "recvmsg", "getpid", "")]
    ['lock', 'thread', 'device', 'memory', 'socket', 'other', '']
    """
    if not name:
        return ""
    return next((kind for kind, pattern in KINDS.items() if pattern.fullmatch(name)), OTHER)
