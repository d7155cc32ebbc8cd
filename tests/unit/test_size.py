"""The budget of features.yaml: sizes by hand, each fault by its line, and this project without one."""

from profzoo.records import import_graph
from tests.tools import size


def test_the_project_is_within_its_budget() -> None:
    assert list(size.find_faults(import_graph.PROJECT)) == []
