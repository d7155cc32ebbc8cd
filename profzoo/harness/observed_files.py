"""Notes which files a measured process opens, imports, lists and writes, by functions in place of Python's own.

An audit hook would see the same, but it is also called for each `id()`, which optimizers call in every step. Only
Python's own modules are imported: a script's process runs this file before anything of the script. What follows from
the notes is part of a job's record (profzoo/records/read_files.py). Forks take part, and processes that are started
with the same environment. What a library opens without Python, such as a file of HDF5, is seen only while it is mapped
or open when a process ends its window.
"""

import builtins
import functools
import importlib.machinery
import io
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

# Names the folder of the notes, which has a file per process. Without this variable nothing is noted.
NOTES = "PROFZOO_OBSERVED_FILES"
# Kinds of notes: a file that was opened, with its size and time; one that did not exist; one that was seen in use; one
# that was written or removed; a folder that was listed; and a folder of so many opened files that no more are noted.
OPENED, ABSENT, IN_USE, WRITTEN, LISTED, MANY = "opened", "absent", "in use", "written", "listed", "many"
MOST_IN_FOLDER = 64
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
OF_MODES = frozenset("wax+")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
# Code that lists the folders of modules and packages, whatever the program itself reads.
FINDERS = ("<frozen importlib", "/importlib/", "/pkgutil.py", "/pkg_resources/", f"{PACKAGE}/")
SYSTEM = (
    "/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/var/lib/", "/var/cache/",
    "/var/run/", "/run/user/", "/opt/nvidia/", "/tmp/torchinductor_",
)  # fmt: skip
# Parts of paths, wherever they lie: packages and what is known of them, bytecode, versions of files, and what
# `profzoo advise` makes beside a script.
LEFT_OUT = (
    "/site-packages/", "/dist-packages/", ".dist-info/", ".egg-info/", "/__pycache__/", "/.git/", "/profzoo-results/",
)  # fmt: skip
# Variables that name folders of temporary files and caches, which programs fill by themselves.
CACHES = ("TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TORCH_HOME", "MPLCONFIGDIR",
          "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TRITON_HOME", "CUDA_CACHE_PATH",
          "NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX")  # fmt: skip


# Before another takes its place.
OPEN = os.open


class Noted:
    """A function that notes its arguments and calls another; like a function in C, it is not a method of any class."""

    def __init__(self, function: Callable[..., Any], note: Callable[..., None]) -> None:
        """note: takes the same arguments; what it raises is left out, as an error would end what the program does."""
        self._function, self._note = function, note
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Note the arguments, and call the function."""
        with suppress(Exception):
            self._note(*arguments, **named)
        return self._function(*arguments, **named)


class FileObserver:
    """Notes files of this process, each once; folder: of the notes."""

    def __init__(self, folder: str) -> None:
        """Nothing is noted yet."""
        self._folder, self._host = folder, os.uname().nodename
        self._working = f"{os.getcwd()}/"  # noqa: PTH109
        self._left_out: tuple[str, ...] = ()
        self.find_left_out()
        self._seen: set[tuple[str, str]] = set()
        self._counts: dict[str, int] = {}
        self._follows_torch = False

    def find_left_out(self) -> None:
        """Find the folders whose files do not count, anew where variables that name some have changed."""
        # A copy: the environment notes what a program asks it for.
        found = left_out_folders(self._working, dict(os.environ))
        self._left_out = (f"{os.path.dirname(self._folder)}/", *found)  # noqa: PTH120

    def follow_python(self) -> None:
        """Note what this process opens, imports, lists and writes from here on."""
        self._replace(builtins, "open", self._open)
        for module, names, note in (
            (io, ("open", "open_code"), self._open), (os, ("open",), self._open_number),
            (os, ("listdir", "scandir"), self._list), (os, ("rename", "replace"), self._move),
            (os, ("remove", "unlink", "mkdir", "rmdir", "truncate"), self._remove),
        ):  # fmt: skip
            for name in names:
                self._replace(module, name, note)
        for loader in (importlib.machinery.SourceFileLoader, importlib.machinery.ExtensionFileLoader):
            name = "get_code" if loader is importlib.machinery.SourceFileLoader else "create_module"
            setattr(loader, name, self._noting_import(getattr(loader, name)))
        for word in sys.orig_argv[1:]:
            # The program itself is opened without Python.
            if word.endswith(".py"):
                self.note_used(word)

    def follow_torch(self, torch: Any) -> None:
        """Note what torch writes and maps without Python; files of safetensors are mapped by this function, too."""
        if self._follows_torch:
            return
        self._follows_torch, from_file = True, torch.UntypedStorage.from_file
        torch.save = _noting(torch.save, lambda _, f, *__, **___: self._write(f))
        torch.UntypedStorage.from_file = staticmethod(
            _noting(from_file, lambda filename, *_, **__: self._use(filename))
        )

    def _replace(self, module: Any, name: str, note: Callable[..., None]) -> None:
        function = getattr(module, name)
        noted = Noted(function, note)
        setattr(module, name, noted)
        # Sets of functions by what they can do, which other modules ask.
        for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if function in known:
                known.add(noted)

    def _noting_import(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def noting(loader: Any, *arguments: Any) -> Any:
            with suppress(Exception):
                self._open(loader.path)
            return function(loader, *arguments)

        return noting

    def note_used(self, path: Any) -> None:
        """Note a file that a library reads without Python."""
        with suppress(Exception):
            self._use(path)

    def _open(self, path: Any, mode: str = "r", *_: Any, **__: Any) -> None:
        self._open_number(path, WRITING if OF_MODES & {*mode} else 0)

    def _open_number(self, path: Any, flags: int, *_: Any, dir_fd: int | None = None, **__: Any) -> None:
        if flags & WRITING:
            self._remove(path, dir_fd=dir_fd)
            return
        whole = self._place(path)
        if whole is None or dir_fd is not None or flags & os.O_DIRECTORY or (OPENED, whole) in self._seen:
            return
        folder, code = os.path.dirname(whole), whole.endswith(".py")  # noqa: PTH120
        if not code and (MANY, folder) in self._seen:
            return
        try:
            found = os.stat(whole)  # noqa: PTH116
        except OSError:
            self._note(ABSENT, whole)
            return
        self._note(OPENED, whole, f"{found.st_size} {found.st_mtime_ns}")
        self._counts[folder] = self._counts.get(folder, 0) + (not code)
        if self._counts[folder] >= MOST_IN_FOLDER:
            self._note(MANY, folder)

    def _list(self, path: Any = None, *_: Any) -> None:
        whole = self._place("." if path is None else path)
        # The frame behind this one is that of Noted.
        if whole is None or (LISTED, whole) in self._seen or _is_finder(sys._getframe(2)):
            return
        if os.path.isdir(whole):  # noqa: PTH112
            self._note(LISTED, whole)

    def _move(self, old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        self._remove(old, dir_fd=src_dir_fd)
        self._remove(new, dir_fd=dst_dir_fd)

    def _remove(self, path: Any, *_: Any, dir_fd: int | None = None) -> None:
        # A path that is relative to an open folder is not known; whole trees are removed in this way.
        if dir_fd is None:
            self._write(path)

    def _write(self, path: Any) -> None:
        if (whole := self._place(path)) is not None:
            self._note(WRITTEN, whole)

    def _use(self, path: Any, *_: Any) -> None:
        whole = self._place(path)
        if whole is not None and os.path.isfile(whole):  # noqa: PTH113
            found = os.stat(whole)  # noqa: PTH116
            self._note(IN_USE, whole, f"{found.st_size} {found.st_mtime_ns}")

    def _place(self, path: Any) -> str | None:
        """Absolute path of a file that counts; None for any other."""
        if isinstance(path, int):
            return None
        whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        if whole.startswith(self._left_out) or any(part in whole for part in LEFT_OUT):
            return None
        if whole.endswith("/torch/__init__.py"):
            # Built from its sources: its version is recorded, not its thousands of files.
            self._left_out = (*self._left_out, whole.removesuffix("__init__.py"))
            return None
        return whole

    def _note(self, kind: str, path: str, about: str = "") -> None:
        """Append a note to this process's own file, which a process that is killed leaves as well."""
        if (kind, path) in self._seen or "\n" in path:
            return
        self._seen.add((kind, path))
        # Opened anew: a program may close files that it did not open, and open others by their numbers.
        own = OPEN(f"{self._folder}/{self._host}-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(own, os.fsencode(f"{kind}\t{about}\t{path}\n"))
        finally:
            os.close(own)


def left_out_folders(working: str, given: dict[str, str]) -> tuple[str, ...]:
    """Folders with a slash at the end whose files are not noted: installed packages, the system, caches, profzoo.

    working: the working folder, whose files are noted wherever it lies, if no package is installed there. given: the
    environment.
    """
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    named += [*site.getsitepackages(), site.USER_SITE or "", *filter(holds_packages, sys.path)]
    wide = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    wide += [given[name] for name in CACHES if given.get(name)]
    home = given.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    # Settings and caches of other programs; a plain name of a folder begins with the point.
    wide += [f"{home}/."]
    found = {form for path in named if path for form in (path, os.path.realpath(path))}
    others = {form for path in wide for form in (path, os.path.realpath(path) if not path.endswith("/.") else path)}
    ends = {path if path.endswith("/.") else f"{path.rstrip('/')}/" for path in others} | {*SYSTEM}
    return (
        f"{PACKAGE}/", f"{os.path.dirname(PACKAGE)}/models/run.py", f"{working}.snakemake/",  # noqa: PTH120
        *sorted(f"{path}/" for path in found), *sorted(path for path in ends if not working.startswith(path)),
    )  # fmt: skip


def holds_packages(folder: str) -> bool:
    """Return whether packages are installed in a folder of `sys.path`, whose versions are recorded."""
    with suppress(OSError):
        return bool(folder) and any(name.endswith(".dist-info") for name in os.listdir(folder))  # noqa: PTH208
    return False


def files_in_use() -> Iterator[str]:
    """Paths of the files that this process has mapped, or open to be read and not written, as locks and logs are."""
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:  # noqa: PTH123
        # The path is the sixth field.
        yield from {parts[5].rstrip("\n") for line in maps if len(parts := line.split(None, 5)) == 6}
    with suppress(OSError):
        for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
            with suppress(OSError):
                if not _flags(number) & WRITING:
                    yield os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115


def _flags(number: str) -> int:
    """Flags with which a descriptor was opened."""
    with open(f"/proc/self/fdinfo/{number}", encoding="ascii") as lines:  # noqa: PTH123
        return next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))


def _is_finder(frame: Any) -> bool:
    """Whether the code that lists a folder is not the program; frame: its frame, or one of pathlib that it calls."""
    while frame.f_back is not None and "pathlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return any(name in frame.f_code.co_filename for name in FINDERS)


_observers: list[FileObserver] = []


def observe_process() -> None:
    """From now on, note the files of this process and of its forks, if the environment names a folder for notes.

    Once the environment has got further variables, this is called again.
    """
    for one in _observers:
        one.find_left_out()
    folder = dict(os.environ).get(NOTES)
    if folder and not _observers:
        _observers.append(FileObserver(folder))
        _observers[0].follow_python()


def note_files_in_use() -> None:
    """Note the files that are mapped or open in this process, if its files are noted."""
    for one in _observers:
        for path in files_in_use():
            one.note_used(path)


def follow_torch(torch: Any) -> None:
    """Note what torch writes and maps without Python, if the files of this process are noted; torch: the module."""
    for one in _observers:
        one.follow_torch(torch)


def _noting(function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    """Return a function that notes its arguments before it calls another."""

    @functools.wraps(function)
    def noting(*arguments: Any, **named: Any) -> Any:
        with suppress(Exception):
            note(*arguments, **named)
        return function(*arguments, **named)

    return noting
