"""Makes a cell's tables of ncu's counters alone: occupancy, memory chart, pipe utilisation and warp states."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pandas as pd

from profzoo.io import csv_tables as reading
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.kernels import kernel_classes
from profzoo.tables import counter_groups, memory_chart, occupancy, pipes, warp_states
from profzoo.tools.ncu import chart_quantities, export_schema
from profzoo.tools.ncu.chart_sets import MEMORY_CHART, OCCUPANCY, PIPES, WARP_STATES

# By the table's name: its declaration.
TABLES: Final[Mapping[str, Table]] = {
    OCCUPANCY: occupancy.TABLE,
    MEMORY_CHART: memory_chart.TABLE,
    PIPES: pipes.TABLE,
    WARP_STATES: warp_states.TABLE,
}
_OF_GROUPS = {
    MEMORY_CHART: (memory_chart.make_memory_chart, chart_quantities.MEMORY),
    PIPES: (pipes.make_pipes, chart_quantities.PIPES),
    WARP_STATES: (warp_states.make_warp_states, chart_quantities.WARP_STATES),
}
OTHER_RULES = (
    "launch configurations have another theoretical occupancy by ncu than computed from registers, shared memory and "
    "block size, so what limits them is not said"
)
NOT_ALL = (
    "ncu profiled only some launches, or no times of them, and nothing says for how many others they stand, so there "
    "are no sums over the step; ncu.launches: sampled, or all, has them"
)


def make_tables(
    sets: Sequence[pd.DataFrame], census: pd.DataFrame | None, steps: float
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the tables by name (TABLES), and notes for the log.

    Args:
        sets: rows of the cell's ncu.{set}.csv; of several, the first that has a value counts.
        census: all launches of the window, in order, if the launches of the sets were chosen from them.
        steps: number of steps in the window.
    """
    tables = [*sets, *([] if census is None else [census])]
    classes = kernel_classes.classify_all({name for table in tables for name in table["kernel"].unique()})
    launches = counter_groups.launches_of_cell(sets, census)
    found = {OCCUPANCY: occupancy.make_occupancy(sets, census, classes, steps)}
    for name, (make, known) in _OF_GROUPS.items():
        found[name] = make(counter_groups.sum_by_group(sets, launches, classes, steps, known))
    unlike = occupancy.count_disagreements(found[OCCUPANCY])
    notes = [f"{unlike} {OTHER_RULES}"] if unlike else []
    return found, notes + ([NOT_ALL] if launches is None and any(len(one) for one in sets) else [])


def main(
    sets: Sequence[str],
    census: str | None,
    steps: float,
    outputs: Mapping[str, str],
    say: Callable[[str], object] = print,
) -> None:
    """Read the cell's exported tables of ncu, and write the tables of its counters.

    sets: paths, in the order in which they count. census: all launches, if the sets are sampled. outputs: paths by the
    table's name.
    """
    counted = [reading.read(path, export_schema.TABLE) for path in sets]
    every = export_schema.read_census(census) if census else None
    found, notes = make_tables(counted, every, steps)
    for note in notes:
        say(f"{outputs[OCCUPANCY]}: {note}")
    for name, table in found.items():
        write_csv(table, outputs[name])
