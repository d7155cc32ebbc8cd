"""Recordings of real tools, as tests/data/README.md describes them; how many processes tests run in."""

import gc
import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data"
CORES = len(os.sched_getaffinity(0))
if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is imported: its threads would spin on cores that other workers compute on.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(CORES // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]), 1)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For -n auto one more than there are cores, as tests of batch systems wait a lot; each takes up to 2 GB."""
    return min(CORES + 1, 8)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who runs which tests, where several processes do."""
    # Here, as it takes pytest-xdist.
    from tests.scheduling import ByFile

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Have the collector of garbage leave out what is made here, which stays: torch, and thousands of tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests in their order, in each process."""
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
