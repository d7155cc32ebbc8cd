"""No job outlives the test that began it, whatever became of that."""

from collections.abc import Iterator

import pytest

from tests.faults.jobs import STARTED, ended


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """End the jobs that a test has left."""
    yield
    while STARTED:
        job = STARTED.pop()
        if job.poll() is None:
            # Not by SIGKILL, so that it ends its own processes.
            job.terminate()
            ended(job)
