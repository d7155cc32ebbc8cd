"""doctor by the profile of a batch system: it looks at a node with a GPU, and answers where it was asked."""

import platform
from pathlib import Path

import pytest

from tests.workflow.project import rules
from tests.workflow.test_generic import sited


@pytest.mark.slow
def test_doctor_looks_at_a_node_and_answers_in_the_terminal(tmp_path: Path, recorded: Path) -> None:
    site = sited(tmp_path, "lsf", recorded)
    code, output = site.ended("doctor")
    assert code == 0, output
    assert f"Checks on {platform.node()}:" in output.splitlines()
    assert "This machine can profile with: torch (on the CPU)." in output
    (words,) = site.submitted().values()
    assert "num=1" in words
    # What was found holds for that moment alone.
    assert "examine_machine" in rules(site.dry("doctor"))
