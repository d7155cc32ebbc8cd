"""The files that tests/scheduling.py names are there, and those that use the made-up zoo are run by one process."""

import pytest

from profzoo.records.import_graph import PROJECT
from tests import scheduling


@pytest.mark.parametrize("name", sorted({*scheduling.SPREAD, *scheduling.TOGETHER}))
def test_named_files_are_there(name: str) -> None:
    assert (PROJECT / name).is_file()


def test_one_process_makes_the_tables_of_the_zoo() -> None:
    using = {
        str(path.relative_to(PROJECT))
        for path in (PROJECT / "tests" / "unit").glob("test_*.py")
        if "whole_zoo." in path.read_text()
    }
    assert using - {"tests/unit/test_scheduling.py"} == {
        name for name, group in scheduling.TOGETHER.items() if group == scheduling.ZOO
    }
