"""Exports metrics with several values per launch, of the most expensive kernels of a report."""

from collections.abc import Callable

import pandas as pd

from profzoo.errors import DataError
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu.expensive_launches import read_expensive
from profzoo.tools.ncu.instances_columns import OF_KERNEL, TABLE
from profzoo.tools.ncu.instances_page import OPCODE, read_instances
from profzoo.tools.ncu.report_pages import print_page

PAGE = ["--page", "raw", "--print-units", "base", "--print-kernel-base", "mangled"]
PAGE += ["--print-metric-instances", "details"]
NO_INSTANCES = (
    "holds no metric with several values per launch: collect the sections PmSampling or InstructionStats, as the set "
    "`instances` does"
)

NO_OPCODES = (
    "the report does not tell which instructions were executed, as ncu derives them from machine code: collect the "
    "section set with `sass: true`, as the set `instances` has it"
)


def tabulate_report(report: str, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of these launches of a report, with the columns of TABLE.

    Raises:
        DataError: the report holds no metric with instances, or ncu cannot print it.
    """
    frames = []
    for row in chosen.to_dict("records"):
        frame = read_instances(print_page(report, PAGE, int(row["id"])), report)
        for name in reversed(OF_KERNEL):
            frame.insert(0, name, row[name])
        frames.append(frame)
    table = pd.concat(frames, ignore_index=True)
    if table.empty:
        raise DataError(f"{report} {NO_INSTANCES}")
    return table[list(TABLE.columns)]


def main(report: str, launches: str, kernels: int, csv: str, say: Callable[[str], object] = print) -> None:
    """Write the table of instances, and say if it has no instructions.

    Args:
        report: report of ncu.
        launches: the exported table of the same section set.
        kernels: number of kernels, the most expensive first.
        csv: the table to write.
        say: function that prints a note for the user.
    """
    table = tabulate_report(report, read_expensive(launches, kernels))
    if not table["kind"].eq(OPCODE).any():
        say(f"{csv}: {NO_OPCODES}")
    write_csv(table, csv)
