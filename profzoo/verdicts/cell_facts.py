"""Read from sidecars of unprofiled runs what verdicts and plans need to know of each cell."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import sidecars as fact
from profzoo.tables.cell_tables import cell_key
from profzoo.verdicts.noted_facts import NotedFacts, read_noted
from profzoo.verdicts.rule_types import KnownSettings

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine


@dataclass(frozen=True)
class CellFacts:
    """What is known of cells, by model and phase.

    ran_with: settings of each cell. lines: lines at which a step waits for the GPU; cells whose lines are unknown are
    missing. noted: what the processes noted of their work.
    """

    ran_with: dict[tuple[str, str], KnownSettings]
    lines: "dict[tuple[str, str], Sequence[BlockingLine]]"
    noted: dict[tuple[str, str], NotedFacts] = field(default_factory=dict)


def read_cell_facts(sidecars: Sequence[str]) -> CellFacts:
    """Read the sidecars of unprofiled runs.

    Raises:
        DataError: a sidecar is damaged.
    """
    wanted: fact.Needs = {"cell": {}, "blocking_lines?": fact.LIST, "padding?": fact.LIST, "compilations?": fact.LIST}
    read = {cell_key(path): read_facts(path, wanted) for path in sidecars}
    return CellFacts(
        ran_with={cell: facts["cell"] for cell, facts in read.items()},
        lines={cell: facts["blocking_lines"] for cell, facts in read.items() if "blocking_lines" in facts},
        noted={cell: read_noted(facts) for cell, facts in read.items()},
    )
