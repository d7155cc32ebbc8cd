"""The largest cause of a slow token, planted, and its cost against the same decoder without it."""

from pathlib import Path

import pytest

from profzoo.tables import tokens
from tests.benchmarks.token_parts import DECODER, PLANTED, Seen, measure, told_of

# Of the time of a token: what sums may differ by; of a cost, by what two runs differ.
WITHIN, APART = 0.02, 0.15


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


def sums(seen: Seen) -> None:
    """Parts are the measured time, and launches with idle time the wall time of the trace."""
    assert seen.decode["ns"].sum() == pytest.approx(seen.measured.further_ns, rel=WITHIN)
    assert seen.decode["traced_ns"].sum() == pytest.approx(seen.wall_ns, rel=WITHIN)
    assert abs(tokens.list_parts(seen.decode)[tokens.UNEXPLAINED]) < WITHIN * seen.measured.further_ns


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_named_first_with_its_cost(folder: Path, cause: str) -> None:
    settings, planted = PLANTED[cause]
    plain = measure(folder, f"plain-{planted}", *DECODER, *settings)
    slow = measure(folder, planted, *DECODER, *settings, planted)
    sums(plain)
    sums(slow)
    assert tokens.rank_causes(slow.decode).index[0] == cause
    told = told_of(cause, slow) - told_of(cause, plain)
    assert told == pytest.approx(slow.measured.further_ns - plain.measured.further_ns, rel=APART)
