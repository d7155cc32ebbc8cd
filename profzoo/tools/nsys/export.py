"""Exports an nsys trace: one row per launch configuration and range, and how the window's time was spent."""

from collections.abc import Callable, Iterator

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv, write_json
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys import trace as nsys_trace


def main(
    sqlite: str, report_sidecar: str, csv: str, steps: str, sidecar: str, say: Callable[[str], object] = print
) -> None:
    """Read the export and its sidecar, write both CSV and the table's sidecar.

    The table's sidecar is a copy of the report's. If a whole run was traced, it also has `traced_steps`: the number of
    complete steps of the window in the trace, from which values per step are computed.

    Raises:
        DataError: the trace has no launch although the cell ran on a GPU.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT, "device_type": fact.TEXT, "steps?": fact.COUNT})
    whole_run = facts["capture"] == "run"
    table = nsys_tables.summarise(sqlite, whole_run)
    if table.empty and facts["device_type"] == "cuda":
        raise DataError(
            f"{sqlite} holds no kernel launch although the cell ran on a GPU: trace cuda (nsys.traces), "
            "and see the log of the profiling job"
        )
    held, begins = nsys_trace.count_traced_steps(sqlite, whole_run)
    if whole_run:
        facts = {**facts, "traced_steps": held}
    lacking = nsys_trace.explain_no_steps(sqlite, whole_run)
    ran = held if whole_run else facts.get("steps", held)
    for note in (*_of_steps(held, ran, begins or not whole_run, lacking), *_of_graphs(table)):
        say(f"{csv}: {note}")
    write_csv(table, csv)
    write_csv(nsys_steps.where_time_goes(sqlite, whole_run), steps)
    write_json(facts, sidecar)


def _of_steps(held: int, ran: int, begins: bool, lacking: str | None) -> Iterator[str]:
    """Return notes on the steps that a trace holds; ran: steps of the window; lacking: why there are none, or None."""
    if lacking:
        yield f"the trace {lacking}"
    elif held < ran:
        yield f"the trace holds {held} of the {ran} steps of the window: nsys lost some, so values per step are low"
    elif not begins:
        yield f"the window's beginning is not in the trace, so that the {held} whole steps there may be of warm-up"


def _of_graphs(table: pd.DataFrame) -> Iterator[str]:
    share = nsys_tables.graph_share(table)
    if share:
        yield (
            f"{share:.0%} of GPU time is in CUDA graphs, each traced as one launch; nsys.cuda_graph: node shows their "
            "kernels"
        )
