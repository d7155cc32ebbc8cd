"""Says what reading values for logging less often would gain, such as the loss: a wait or a few in each step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from profzoo.tables.step_shares import amdahl
from profzoo.verdicts.feasibility import Feasibility, describe_lines
from profzoo.verdicts.verdict import Verdict
from profzoo.verdicts.wait_costs import SYNCHRONISATION

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine

# The share of the rule about them.
LOGGING = "logging_removed"
# Operations by which programs read a number to show it.
READING = (".item()", ".tolist()", "float()", "int()", "print()", "format()", "str()", ".cpu()", ".numpy()")
# So many waits per step are for logging; more are part of the computation.
FEW = 4
# How many steps apart values are read in the advice.
APART = 10


def find_logged(lines: "Sequence[BlockingLine] | None") -> "Sequence[BlockingLine]":
    """Return a step's lines that wait if all of them read a few numbers outside of the forward and backward pass.

    lines: those of the step itself; None if none was looked for.
    """
    known = list(lines or ())
    reads = all(one["operation"] in READING and one["range"] not in ("forward", "backward") for one in known)
    return known if known and reads and sum(one["calls"] for one in known) <= FEW else []


def advise_logging(found: Sequence[Verdict], feasible: Feasibility) -> list[Verdict]:
    """Return verdicts; those on waits of lines that only log say what it gains to read every tenth step.

    The verdict that reading costs less than synchronisation-bound asks for stays only where there are such lines, and
    where no verdict on synchronisation says more.
    """
    lines, told = find_logged(feasible.lines), any(row.about == SYNCHRONISATION for row in found)
    kept = []
    for row in found:
        if row.about not in (LOGGING, SYNCHRONISATION) or (row.about == SYNCHRONISATION and not lines):
            kept.append(row)
        elif lines and (row.about == SYNCHRONISATION or not told):
            kept.append(_advised(row, lines))
    return kept


def _advised(row: Verdict, lines: "Sequence[BlockingLine]") -> Verdict:
    """Return a verdict with the advice to read less often, and what that gains."""
    named = "" if row.about == SYNCHRONISATION else f"{describe_lines(lines)}: "
    rest = f", {amdahl(1 - 1 / row.gain, 1 - 1 / APART):.2f} times as fast" if row.gain and row.gain > 1 else ""
    advice = (
        f"a value that is only logged can be read every {APART} steps{rest}, or be kept on the GPU and read after the "
        "next step has been launched, which gains nearly all of it"
    )
    text = f"{row.next_step}; {advice}" if row.about == SYNCHRONISATION else f"{named}{advice}"
    return replace(row, next_step=text)
