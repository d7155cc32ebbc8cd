"""Fixtures for recordings of real tools (tests/data/README.md), and the processes and order of tests."""

import atexit
import gc
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"
CORES = len(os.sched_getaffinity(0))
# Some machines tune a library by variables, which records would hold and forks of other processes would lack.
for name in [name for name in os.environ if name.startswith("OPENBLAS_")]:
    del os.environ[name]
if "PYTEST_XDIST_WORKER" in os.environ:
    # This comes before torch is imported, because its threads would otherwise spin on cores that other workers use.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(CORES // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]), 1)))
    # Of several nsys that start in one TMPDIR, some take the sockets of others (4 of 220, 4 at once). The path is short,
    # because paths of sockets are limited to 108 bytes.
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="t-")
    atexit.register(shutil.rmtree, os.environ["TMPDIR"], ignore_errors=True)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which tests are left out; pytest would only count them, and not even this with several processes."""
    if "not slow" in config.getoption("markexpr"):
        return "left out: tests marked slow; `make test-all` runs them too"
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Repeat at the end what was left out, where it is still read."""
    if left_out := pytest_report_header(config):
        terminalreporter.write_line(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processes for -n auto: one more than cores, because tests of batch systems often wait.

    A process takes up to 2 GB.
    """
    return min(CORES + 1, 8)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler that gives tests to processes, if there are several."""
    # Imported here, because it needs pytest-xdist.
    from tests.scheduling import ByFile

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude objects made during collection from garbage collection; torch and thousands of tests stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests by their place, in each process."""
    if hasattr(config, "workerinput"):
        from tests.scheduling import place

        items.sort(key=lambda item: place(item.nodeid))


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory):
    """Unpack a recording, named without .gz, and return its path."""
    folder = tmp_path_factory.mktemp("recordings")

    def unpack(name: str) -> Path:
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.open(DATA / f"{name}.gz") as packed, path.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
        return path

    return unpack


def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of pytest-xdist share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def few_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of three models, which no test may change."""
    # Imported here, because most tests need neither.
    from tests import recorded_results
    from tests.workflow.project import locked

    home = shared(tmp_path_factory) / "few"
    with locked(home.with_suffix(".lock")):
        if not (home / "results").exists():
            made = recorded_results.write_few(home / "partial", home / "space")
            # The folder gets its name when it is complete.
            made.rename(home / "results")
    return home / "results"


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Return what has nvidia-smi print a text, and end with a code."""
    (tmp_path / "programs").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:/usr/bin:/bin")

    def write(printed: str, code: int = 0) -> None:
        path = tmp_path / "programs" / "nvidia-smi"
        path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{printed}\nEOF\nexit {code}\n")
        path.chmod(0o755)

    return write


@pytest.fixture(scope="session")
def starter() -> Iterator[Any]:
    """Fork all contestants of the referee from one process, which imports torch once."""
    from profzoo.experiments.forked_runs import ProcessStarter

    with closing(ProcessStarter(fork=True)) as starter:
        yield starter
