"""Every reader on damaged files: all that was there, exactly what the file says, or an error that names the file."""

import random
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tests.faults import mutations, readers

# Of each kind of file; those that take long are drawn less often.
QUICK, WHOLE, SEED = 3, 40_000, 0
# One of each form.
FIRST = ("activity.csv", "baseline.json", "details.csv", "mangled.csv", "x.json.gz", "x.sqlite")


@pytest.mark.parametrize("name", FIRST)
def test_damaged_files_are_read_as_they_are_or_refused(name: str) -> None:
    cases = QUICK * readers.readers()[name].weight + 12
    found = list(readers.run(cases, SEED, (name,)))
    assert [case for case in found if case[3]] == []
    # Of nothing but refusals there is nothing to learn.
    assert {how for _, _, how, _ in found} > {"refused"}


@pytest.mark.slow
def test_damaged_files_of_other_kinds_are_read_as_they_are_or_refused() -> None:
    """In one test, because their names are known only once all files are made."""
    others = sorted({*readers.readers()} - {*FIRST})
    assert others
    for name in others:
        test_damaged_files_are_read_as_they_are_or_refused(name)


@pytest.mark.faults
def test_damaged_files_of_all_kinds_are_read_as_they_are_or_refused() -> None:
    ended: Counter[str] = Counter()
    for case in readers.run(WHOLE, SEED):
        assert case[3] is None, case
        ended[case[2]] += 1
    assert set(ended) == {"refused", "the same", "as it says"}


def test_a_reader_that_guesses_is_found(tmp_path: Path) -> None:
    """What held before names stayed text: pandas takes some for missing values."""
    known = readers.readers()["activity.csv"]
    guessing = readers.Reader(
        known.name, known.content, lambda path: readers.rows_of(pd.read_csv(path)), known.says, (mutations.named,)
    )
    said = [readers.wrong(guessing, random.Random(seed), tmp_path)[1] for seed in range(100)]
    assert any(one and "as something else than it says" in one for one in said)
    assert any(one and "Error" in one for one in said)
