"""Lists the first verdict of each cell, for runs after which no gain is expected: what limits the cell, if known."""

from pathlib import Path

from profzoo.terminal.table_rows import read_cell_verdicts

SHOWN = 3
UNDECIDED = "undecided"


def list_cell_verdicts(verdicts: Path) -> list[str]:
    """Return one sentence for each of the first SHOWN cells in a table of verdicts, whose file may be missing."""
    found: dict[tuple[str, str], str] = {}
    for row in read_cell_verdicts(verdicts):
        found.setdefault((row["model"], row["phase"]), _describe(row))
    return [f"{model} {phase}: {says}" for (model, phase), says in list(found.items())[:SHOWN]]


def _describe(row: dict[str, str]) -> str:
    """Describe a verdict with its next step; that of an undecided one begins with what could not be decided."""
    if row["verdict"] == UNDECIDED:
        return row["next_step"] or UNDECIDED
    return f"{row['verdict']}; {row['next_step']}" if row["next_step"] else row["verdict"]
