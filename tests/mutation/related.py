"""Which test files are asked about a mistake: those whose imports lead to its module, the nearest first.

A test file's distance from a module is the number of imports between them: 0 where the file, or a helper of tests/ that
it imports, imports the module, and 1 where it imports a module of profzoo/ that does. Among files of one distance the
module's own comes first (test_MODULE.py), then the file that imports the fewest modules.
"""

import ast
import contextlib
import importlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
# Marks of the tests that are asked.
MARKED = ("-m", "not slow and not faults and not gpu")
# A process that waits uses no processor: it may take this many times its limit by the clock, on a busy machine.
CLOCK_SLACK = 4
# What the tests of one fork may allocate: a mistake may make a loop endless.
MEMORY_BYTES = 8 << 30


class Failures:
    """A pytest plugin that writes the id of the first test that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure; pytest ends after the first."""
        if report.failed:
            self.path.write_text(report.nodeid)


def run_in_fork(
    tests: Sequence[str], folder: Path, limit_s: float, plugin: Failures, options: Sequence[str] = ()
) -> tuple[int | None, float]:
    """Run tests of the checkout in `folder` in a fork of this process, in a group of its own that ends with it.

    Returns pytest's exit code and the processor time in seconds; the code is None where the fork used limit_s of
    processor time, or CLOCK_SLACK times that by the clock.
    """
    child = os.fork()
    if not child:
        _be_pytest(tests, folder, plugin, options)
    process = psutil.Process(child)
    ends = time.monotonic() + CLOCK_SLACK * limit_s
    status, used_s = None, 0.0
    while status is None and time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        status = status if done else None
        with contextlib.suppress(psutil.Error):
            used_s = max(used_s, sum(process.cpu_times()[:4]))
        if status is None and used_s > limit_s:
            break
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
        return None, used_s
    return os.waitstatus_to_exitcode(status), used_s


def _be_pytest(tests: Sequence[str], folder: Path, plugin: Failures, options: Sequence[str]) -> None:
    """Become pytest: import profzoo, tests and models from the folder."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    sys.path[:] = [str(folder), *(entry for entry in sys.path if Path(entry).resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in {"profzoo", "tests", "models"}]:
        del sys.modules[name]
    os.chdir(folder)
    importlib.invalidate_caches()
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = str(folder)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    plain = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(folder)]
    os._exit(int(pytest.main([*plain, *options, *tests], plugins=[plugin])))


def list_test_files() -> list[str]:
    """List the files whose tests are asked: all unit tests, and those of readers given damaged files."""
    return [str(path) for path in sorted(Path("tests/unit").glob("test_*.py"))] + ["tests/faults/test_readers.py"]


def read_imports(folders: Iterable[str]) -> dict[str, set[str]]:
    """Map each Python file of some folders to the files of the project that it imports, by paths in the project."""
    found = {}
    for folder in folders:
        for path in sorted(Path(folder).rglob("*.py")):
            names = _list_imports(ast.parse(path.read_text()))
            found[str(path)] = {file for name in names for file in _files_of(name)}
    return found


def _list_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files_of(name: str) -> list[str]:
    """The file of a module of the project, whose name may end in what is imported from it; empty for other modules."""
    parts = name.split(".")
    for count in (len(parts), len(parts) - 1):
        path = Path(*parts[:count]) if count else Path("none")
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if parts[0] in {"profzoo", "tests", "models"} and file.is_file():
                return [str(file)]
    return []


@dataclass(frozen=True)
class Related:
    """What the project's files import, and which of them are test files."""

    imports: Mapping[str, set[str]]
    files: Sequence[str]

    def list_files(self, path: str, most: int) -> list[str]:
        """List at most `most` test files whose imports lead to a module of profzoo/, the nearest first."""
        distances = {file: self._distances(file).get(path) for file in self.files}
        own = f"test_{Path(path).stem}.py"
        found = [
            (distance, Path(file).name != own, len(self.imports[file]), file)
            for file, distance in distances.items()
            if distance is not None
        ]
        return [file for *_, file in sorted(found)[:most]]

    def _distances(self, file: str) -> dict[str, int]:
        """The number of imports from a test file to each module; what lies in tests/ adds none."""
        distances, waiting = {file: 0}, [file]
        while waiting:
            importer = waiting.pop(0)
            step = 0 if importer.startswith("tests/") else 1
            for used in self.imports.get(importer, ()):
                if used not in distances or distances[importer] + step < distances[used]:
                    distances[used] = distances[importer] + step
                    waiting.append(used)
        return distances


def read() -> Related:
    """Read what the files of the checkout in the current folder import."""
    return Related(read_imports(("profzoo", "tests", "models")), list_test_files())
