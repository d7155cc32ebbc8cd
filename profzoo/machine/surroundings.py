"""Says whether a process may be forked and what its forks would not inherit, and completes the memory of a fork."""

import ctypes
import itertools
import os
import resource
import sys
import sysconfig
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
# Parts of the paths of installed packages.
PACKAGES = ("/site-packages/", "/dist-packages/")
# Bytes of a page and of its entry in /proc/PID/pagemap, bits of the entry, and advice for madvise(2).
PAGE, ENTRY, PRESENT, OF_FILE, POPULATE_READ = resource.getpagesize(), 8, 1 << 63, 1 << 61, 22
# Torch's module for CUDA; and a device file that CUDA opens as it is initialised, and NVML does not.
CUDA, OF_CUDA = "torch.cuda", "/dev/nvidia-uvm"
# Threads that were told to end get so long.
ENDING_S = 1.0
# Threads that a library stops before a fork and starts again in the fork, by their names in the kernel: pyarrow's
# allocator has one, which transformers imports (jemalloc, background_thread.c: background_thread_postfork_child).
SAFE_THREADS = ("jemalloc_bg_thd",)


def describe(python: str) -> list[Any]:
    """Return what a process inherits besides variables and open files: folder, namespaces, group, cores and limits.

    python: path of the interpreter.
    """
    inside = [Path(f"/proc/self/ns/{name}").stat().st_ino for name in NAMESPACES]
    limits = [resource.getrlimit(number) for name, number in vars(resource).items() if name.startswith("RLIMIT_")]
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    group = Path("/proc/self/cgroup").read_text()
    # As marshal returns it.
    return [python, str(Path.cwd()), inside, group, sorted(os.sched_getaffinity(0)), nice, sorted(limits)]


def explain_unsafe(profiled: bool = False) -> str:
    """Reason why this process cannot be forked safely; empty if it can.

    profiled: whether it is below a profiler, which has threads and files of its own here.

    A fork inherits memory, but no other threads, and CUDA does not work in it if it was initialised before. A first
    fork asks torch whether CUDA was touched before. That fork also makes OpenBLAS end its threads; it does so before
    each fork, and starts them again when they are needed.
    """
    cuda = sys.modules.get(CUDA)
    child = os.fork()
    if not child:
        os._exit(int(cuda is not None and cuda._is_in_bad_fork()))
    _, status = os.waitpid(child, 0)
    touched = not profiled and OF_CUDA in open_files().values()
    if status or touched or (cuda is not None and cuda.is_initialized()):
        return "CUDA was initialised by an import or by building the network"
    until = time.monotonic() + ENDING_S
    count_now = threading.active_count if profiled else count_threads
    while (count := count_now()) > 1 and time.monotonic() < until:
        time.sleep(0.01)
    if count <= 1:
        return ""
    return f"an import or building the network started {count - 1} thread(s): {', '.join(_other_threads())}"


def open_files() -> dict[int, str]:
    """Return the paths of the files that this process has open, by number."""
    found = dict[int, str]()
    for link in Path("/proc/self/fd").iterdir():
        # The descriptor of the listing itself is closed by now.
        with suppress(OSError):
            found[int(link.name)] = str(link.readlink())
    return found


def count_threads() -> int:
    """Number of threads of this process, without safe ones: as the kernel or as Python counts, whichever is more."""
    return max(1 + len(_other_threads()), threading.active_count())


def _other_threads() -> list[str]:
    """Names of the threads beside this one: those that Python started, and all others as the kernel has them."""
    python = {one.native_id: one.name for one in threading.enumerate()}
    found = []
    for task in Path("/proc/self/task").iterdir():
        # A thread may have ended by now.
        with suppress(OSError):
            if int(task.name) != threading.get_native_id() and (name := (task / "comm").read_text().strip()):
                found += [] if name in SAFE_THREADS else [python.get(int(task.name)) or name]
    return sorted(found)


def explain_unlike() -> str:
    """Reason why a fork of this process would not be what a job's process is; empty if it would.

    A job notes the files that it reads, also modules from a folder of the user's own; a module that runs as Python
    starts may do anything by the job's command.
    """
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # Folders of `pip install --target` say what is installed there.
    targets = [folder for folder in sys.path if folder and any(Path(folder).glob("*.dist-info"))]
    folders = tuple(f"{folder}/" for folder in (*installed, *targets, Path(__file__).parents[1]))
    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or folders[0])
        # The modules of torch.ops are made, and have names without a folder.
        if file.startswith("/") and not file.startswith(folders) and not any(part in file for part in PACKAGES):
            return f"module {name} is not of an installed package: {file}"
    return ""


def mapped_ranges() -> list[tuple[int, int]]:
    """Return addresses and bytes of what is in memory of the files that this process has mapped.

    A fork finds it in the cache of files only as it needs it, and until then does not count it as its own memory.
    """
    found = []
    with open("/proc/self/pagemap", "rb") as pages, open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
        for line in maps.read().splitlines():
            # Addresses, rights, offset, device, number and path.
            fields = line.split(None, 5)
            if fields[1][0] != "r" or not fields[5:] or not fields[5].startswith("/"):
                continue
            first, last = (int(word, 16) for word in fields[0].split("-"))
            pages.seek(first // PAGE * ENTRY)
            found += [
                (first + begin * PAGE, count * PAGE)
                for begin, count in _runs(array("Q", pages.read((last - first) // PAGE * ENTRY)))
            ]
    return found


def _runs(entries: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield number and length of each run of pages that are in memory, and are a file's."""
    number = 0
    for held, group in itertools.groupby(entry & (PRESENT | OF_FILE) == PRESENT | OF_FILE for entry in entries):
        count = sum(1 for _ in group)
        if held:
            yield number, count
        number += count


def map_again(ranges: Sequence[tuple[int, int]]) -> None:
    """Map what the process that was forked had mapped, so that this process counts it as its memory as well."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for address, size in ranges:
        # Kernels before 5.14 do not know this; memory then counts as soon as it is used.
        madvise(address, size, POPULATE_READ)
