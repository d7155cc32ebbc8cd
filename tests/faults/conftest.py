"""No job, and no temporary file of one, outlives the test that began it, whatever became of that."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harm import Harm
from tests.faults.jobs import STARTED, ended


@pytest.fixture(autouse=True)
def none_left(tmp_path: Path) -> Iterator[None]:
    """End the jobs that a test has left, and remove their folder of a short path."""
    yield
    while STARTED:
        job = STARTED.pop()
        if job.poll() is None:
            # Not by SIGKILL, so that it ends its own processes.
            job.terminate()
            ended(job)
    if (tmp_path / "tmp").is_symlink():
        shutil.rmtree((tmp_path / "tmp").resolve())


@pytest.fixture
def harm(tmp_path: Path) -> Iterator[Harm]:
    """A folder for jobs, of which nothing is left after the test."""
    given = Harm(tmp_path, Path(tempfile.mkdtemp(prefix="harm-")))
    yield given
    given.remove()
