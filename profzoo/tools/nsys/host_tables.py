"""Makes a cell's tables of threads, of calls off the CPU, of CPU samples, and of idle time by call, from its trace."""

from collections.abc import Callable, Mapping

import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.nsys import (
    call_stacks,
    host_events,
    idle_calls,
    process_events,
    requested_events,
    sample_table,
    thread_table,
)
from profzoo.tools.nsys.host_events import CALL_CHAINS, HostEvents
from profzoo.tools.nsys.trace import explain_no_steps, open_export


def make_tables(path: str, whole_run: bool = False) -> tuple[dict[str, pd.DataFrame], HostEvents]:
    """Return the tables of an export by name, `threads`, `off_cpu`, `samples` and `idle`, and what they were made of.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is no export of nsys.
    """
    events = host_events.read_host_events(path, whole_run)
    idle = idle_calls.tabulate_idle(events, list(process_events.read_processes(path, whole_run)))
    with open_export(path) as (database, tables):
        frames = sample_table.read_frames(database, tables, events)
        chains = [int(chain) for chain in idle["chain"].unique() if chain > 0]
        stacks = call_stacks.read_stacks(database, tables, CALL_CHAINS, chains)
    threads, off_cpu = thread_table.tabulate_threads(events, sample_table.innermost_functions(frames))
    made = {
        "threads": threads,
        "off_cpu": off_cpu,
        "samples": sample_table.tabulate_samples(frames, events),
        "idle": idle_calls.name_callers(idle, stacks),
    }
    return made, events


def main(sqlite: str, report_sidecar: str, outputs: Mapping[str, str], say: Callable[[str], object] = print) -> None:
    """Read the export and its report's sidecar; write the tables, and say what was asked for and is not in the trace.

    outputs: paths of the tables by name. What nobody asked for goes to the log alone.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    whole_run, command = facts["capture"] == "run", facts.get("command", [])
    made, events = make_tables(sqlite, whole_run)
    if lacking := explain_no_steps(sqlite, whole_run):
        # This goes to the log only; the export of the same trace tells the user.
        print(f"{outputs['threads']} has no row, as {sqlite} {lacking}")
    for table, why in events.lacking.items():
        tell = say if requested_events.was_asked_for(table, command) else print
        tell(f"{sqlite}: {requested_events.explain(why, command)}")
    for name, path in outputs.items():
        write_csv(made[name], path)
