"""A clock that has jumped back: what is made now is older than what it is made from."""

import os
import re
import time

import pytest

from tests.faults.test_runs import TARGET, pretended
from tests.workflow.project import Project


@pytest.fixture
def pretending(tmp_path) -> Project:
    """A copy of which cells only pretend to run."""
    return pretended(tmp_path / "project")


@pytest.mark.slow
def test_a_job_that_ends_before_its_inputs_were_made_fails_for_that(pretending: Project) -> None:
    """And not for what its program says last, of its success."""
    source = pretending.root / "models/lstm.py"
    ahead = time.time() + 24 * 3600
    os.utime(source, (ahead, ahead))
    run = pretending.snakemake(TARGET, ok=False)
    why = re.search(r"^    why      (.*)$", run.stderr, re.MULTILINE)
    assert run.returncode and why, run.stderr
    assert re.fullmatch(
        r"results/lstm/train\.\S+, made at .+, would be older than models/lstm\.py of .+: the clock was set back, or "
        r"differs between machines; set it right, and then `touch models/lstm\.py`",
        why[1],
    )
    source.touch()
    pretending.snakemake(TARGET)
