"""Puts the verdicts on a cell into order: what can be mended first, and general classes after what explains them."""

from collections.abc import Sequence

from profzoo.io.csv_tables import Row
from profzoo.verdicts.feasibility import CLEARING, EVERYTHING, FREES, GRAPH_WORDS, HELD, Feasibility
from profzoo.verdicts.gain_methods import SIMULATED
from profzoo.verdicts.gain_models import CellSimulation
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.graph_obstacles import WAITS

# Shares of rules about too many launches, which a graph cures.
CURED_BY_GRAPHS = ("idle_launching", "short")
# Shares of rules that say which class the time belongs to, and not which code of the program causes it.
GENERAL = (
    *CURED_BY_GRAPHS, "copy", "communication", "cast", "small_grid", "memory", "tensor", "underused", "elementwise",
)  # fmt: skip
# A finding explains a general class if mending it takes away at least this share of what the remedy of the class saves.
MOST = 0.5


def rank_verdicts(
    found: Sequence[Verdict],
    feasible: Feasibility = EVERYTHING,
    replayed: CellSimulation | None = None,
    step: Row | None = None,
) -> list[Verdict]:
    """Sort verdicts by their gain, but put what is general behind what explains it.

    Verdicts on pauses of the host come before the first on too many launches, which are what remains without the
    pauses. A wait does so only where it prevents the CUDA graph that would cure them; memory that is given back always
    does, as nothing needs it, and so do pauses of the host, which a graph does not hold. An undecided verdict is sorted
    by the largest gain that it may have.

    Args:
        found, feasible: the verdicts on a cell, and what it cannot run with.
        replayed, step: what-if simulation of its steps and its row of the table of steps; without them, nothing is
            known to explain anything.
    """
    rows = sorted(found, key=lambda row: -(row.gain or row.potential))
    if replayed and step is not None:
        rows = _after_explanations(rows, replayed, step)
    launches = next((index for index, row in enumerate(rows) if row.about in CURED_BY_GRAPHS), len(rows))
    kinds = [FREES, HELD, *([WAITS] if feasible.refusal(GRAPH_WORDS) else [])]
    pauses = [row for row in rows[launches:] if CLEARING.get(row.about) in kinds and row.gain]
    rest = [row for row in rows[launches:] if row not in pauses]
    return [*rows[:launches], *pauses, *rest]


def _after_explanations(rows: Sequence[Verdict], replayed: CellSimulation, step: Row) -> list[Verdict]:
    """Return sorted verdicts with each general one behind the first that explains it."""
    ordered = list(rows)
    for general in [row for row in rows if row.about in GENERAL and row.change]:
        place = ordered.index(general)
        later = [row for row in ordered[place + 1 :] if row.about not in GENERAL and row.change and row.gain]
        first = next((row for row in later if explains(row, general, replayed, step)), None)
        if first:
            ordered.remove(general)
            ordered.insert(ordered.index(first) + 1, general)
    return ordered


def explains(finding: Verdict, general: Verdict, replayed: CellSimulation, step: Row) -> bool:
    """Return whether most of the time that the remedy of a general class saves is gone once a finding is mended.

    This is seen by simulation of the steps with either change, and with both.
    """
    assert finding.change and general.change
    mended, cured = (_simulated_gain(row, replayed, step) for row in (finding, general))
    both = replayed.gain_together([finding.change, general.change], step, 0.0) if mended and cured else None
    if not (mended and cured and both):
        return False
    alone, left = 1 - 1 / cured, 1 / mended - 1 / both.gain
    return alone > 0 and left <= (1 - MOST) * alone


def _simulated_gain(row: Verdict, replayed: CellSimulation, step: Row) -> float | None:
    """Return the gain of a verdict's change by simulation, which is the verdict's own if it was simulated."""
    if row.method == SIMULATED:
        return row.gain
    found = replayed.gain(row.change, step, 0.0) if row.change else None
    return found.gain if found else None
