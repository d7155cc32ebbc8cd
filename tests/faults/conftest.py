"""Fixtures that end all jobs of a test and remove their temporary files, however the test ends."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harm import Harm
from tests.faults.jobs import STARTED, ended


@pytest.fixture(autouse=True)
def none_left(tmp_path: Path) -> Iterator[None]:
    """End the jobs that a test has left, and remove their temporary folder."""
    yield
    while STARTED:
        job = STARTED.pop()
        if job.poll() is None:
            # SIGTERM and not SIGKILL, so that the job ends its own processes.
            job.terminate()
            ended(job)
    if (tmp_path / "tmp").is_symlink():
        shutil.rmtree((tmp_path / "tmp").resolve())


@pytest.fixture
def harm(tmp_path: Path) -> Iterator[Harm]:
    """Yield a folder for jobs; nothing of it remains after the test."""
    given = Harm(tmp_path, Path(tempfile.mkdtemp(prefix="harm-")))
    yield given
    given.remove()
