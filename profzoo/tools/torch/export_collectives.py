"""Exports the collective operations of a cell's processes from their traces, and how late each process comes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import csv_tables
from profzoo.io import sidecars as fact
from profzoo.io.scripts import write_csv
from profzoo.tools.rank_files import files_by_rank
from profzoo.tools.torch import collective_tables, link_rates, rank_skew, trace
from profzoo.tools.torch.collective_events import read_collectives
from profzoo.tools.torch.command import OF_PROCESS
from profzoo.tools.torch.rank_operations import NoOperationsError, Process, match_operations
from profzoo.tools.torch.rank_timeline import make_timeline

FACTS: fact.Needs = {"ranks": fact.PROCESSES}


def main(
    traces: str, sidecar: str, links: Sequence[str], outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read the traces of a cell's processes from a folder, and write CSV: `collectives` and `skew`.

    sidecar: of the traces. links: path of the measured links between the GPUs, if there is one. Where no operation can
    be matched, both tables have no rows, and a line says why.

    Raises:
        DataError: a process left no trace, or the clocks of hosts cannot be compared.
    """
    ending, count = OF_PROCESS["trace"], len(read_facts(sidecar, FACTS)["ranks"])
    processes, timelines = [], {}
    for host, rank, path in files_by_rank(Path(traces).glob(f"*{ending}"), ending, count, "trace"):
        events = trace.read_trace(path, say)
        found = read_collectives(path, events)
        processes.append(Process(host, rank, found))
        timelines[rank] = make_timeline(events, found.base_ns)
    try:
        operations = match_operations(processes)
    except NoOperationsError as error:
        say(f"{outputs['collectives']} has no rows: {error}")
        write_csv(collective_tables.TABLE.empty(), outputs["collectives"])
        write_csv(rank_skew.TABLE.empty(), outputs["skew"])
        return
    if operations.left_out:
        say(f"{outputs['collectives']} is without {' and '.join(operations.left_out)}")
    probe = csv_tables.read(links[0], link_rates.TABLE) if links else link_rates.TABLE.empty()
    write_csv(collective_tables.tabulate_collectives(operations, probe), outputs["collectives"])
    write_csv(rank_skew.tabulate_skew(operations, timelines), outputs["skew"])
