"""General classes come behind the finding that explains them: on simulated steps where both are known."""

from pathlib import Path

import pandas as pd
import pytest

from profzoo.verdicts import ranking
from profzoo.verdicts.gain_models import FUSED, GRAPH, CellSimulation, RequestedChange
from profzoo.verdicts.verdict import Verdict
from tests import launched, simulated_waits
from tests.known_rules import a_verdict
from tests.simulated_waits import operator

STEP = pd.Series(dtype=float)


def judged(looped: int, others: int, folder: Path) -> tuple[CellSimulation, Verdict, Verdict]:
    """A step of small launches, some of which a loop makes: its simulation, and verdicts on launches and on the loop."""
    loop = [operator(2e3, group=1) for _ in range(looped)]
    program, _ = simulated_waits.traced([*[operator(2e3) for _ in range(others)], *loop], folder)
    replayed, rows = CellSimulation(program), launched.configurations(program)
    rows = rows[rows["launches"] == looped]
    assert len(rows) == 1
    told = {}
    # One launch does the work of the loop, in nearly the same time.
    batched = RequestedChange(FUSED, rows, rows["launches"] * 0 + 0.01)
    for name, change in (("launches", RequestedChange(GRAPH)), ("loop", batched)):
        gain = replayed.gain(change, STEP, 0.0)
        assert gain
        about = "idle_launching" if name == "launches" else "optimizer_loop"
        told[name] = a_verdict(name, about=about, change=change, gain=gain.gain)
    return replayed, told["launches"], told["loop"]


@pytest.mark.parametrize(("looped", "others", "first"), [(100, 80, "loop"), (30, 150, "launches")])
def test_launches_come_behind_the_loop_that_makes_most_of_them(
    looped: int, others: int, first: str, tmp_path: Path
) -> None:
    replayed, launches, loop = judged(looped, others, tmp_path)
    assert launches.gain > loop.gain > 1
    ordered = ranking.rank_verdicts([loop, launches], replayed=replayed, step=STEP)
    assert ordered[0].verdict == first
    # Without a simulation nothing is known to explain anything.
    assert [row.verdict for row in ranking.rank_verdicts([loop, launches])] == ["launches", "loop"]


def test_only_what_is_general_gives_way(tmp_path: Path) -> None:
    """Another finding of the same gain as the launches keeps its place, and so does what has no simulated change."""
    replayed, launches, loop = judged(100, 80, tmp_path)
    named = a_verdict("named", about="padding", change=launches.change, gain=launches.gain)
    unknown = a_verdict("unknown", about="idle_launching", gain=launches.gain)
    for kept in (named, unknown):
        ordered = ranking.rank_verdicts([loop, kept], replayed=replayed, step=STEP)
        assert [row.verdict for row in ordered] == [kept.verdict, "loop"]
