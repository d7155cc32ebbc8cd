"""Read from sidecars of unprofiled runs what verdicts and plans need to know of each cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import sidecars as fact
from profzoo.tables.cell_tables import cell_key
from profzoo.verdicts.noted_facts import NotedFacts, read_noted
from profzoo.verdicts.rule_types import KnownSettings

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine, GradientSync, HostLine, ProcessFacts, Sidecar


# What processes may have noted, as lists.
NOTED = ("blocking_lines?", "host_lines?", "ranks?", "padding?", "compilations?", "repeated_calls?")


@dataclass(frozen=True)
class CellFacts:
    """What is known of cells, by model and phase.

    ran_with: settings of each cell. lines: lines at which a step waits for the GPU; cells whose lines are unknown are
    missing. host_lines: lines at which the host spends a step, in the same way.
    syncs: how gradients are sent, of cells of several processes where it is known.
    noted: what the processes noted of their work.
    """

    ran_with: dict[tuple[str, str], KnownSettings] = field(default_factory=dict)
    lines: "dict[tuple[str, str], Sequence[BlockingLine]]" = field(default_factory=dict)
    host_lines: "dict[tuple[str, str], Sequence[HostLine]]" = field(default_factory=dict)
    syncs: "dict[tuple[str, str], GradientSync]" = field(default_factory=dict)
    noted: dict[tuple[str, str], NotedFacts] = field(default_factory=dict)


def read_cell_facts(sidecars: Sequence[str]) -> CellFacts:
    """Read the sidecars of unprofiled runs.

    Raises:
        DataError: a sidecar is damaged.
    """
    wanted: fact.Needs = {"cell": {}, **dict.fromkeys(NOTED, fact.LIST)}
    read = {cell_key(path): read_facts(path, wanted) for path in sidecars}
    return CellFacts(
        ran_with={cell: facts["cell"] for cell, facts in read.items()},
        lines={cell: facts["blocking_lines"] for cell, facts in read.items() if "blocking_lines" in facts},
        host_lines={cell: facts["host_lines"] for cell, facts in read.items() if "host_lines" in facts},
        syncs={cell: sync for cell, facts in read.items() if (sync := _find_sync(facts))},
        noted={cell: read_noted(facts) for cell, facts in read.items()},
    )


def _find_sync(facts: "Sidecar") -> "GradientSync | None":
    """Return how the first process of a cell sends gradients; None if it is not known, or sends none."""
    own: Sequence[Mapping | ProcessFacts] = (facts, *facts.get("ranks", ()))
    return next((one["gradient_sync"] for one in own if one.get("gradient_sync")), None)
