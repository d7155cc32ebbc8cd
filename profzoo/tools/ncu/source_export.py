"""Exports what ncu counted by source line and machine instruction, of the most expensive kernels of a report."""

from collections.abc import Callable

import pandas as pd

from profzoo.errors import DataError
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import source_columns
from profzoo.tools.ncu.expensive_launches import read_expensive
from profzoo.tools.ncu.report_pages import print_page
from profzoo.tools.ncu.source_page import read_instructions, read_lines
from profzoo.tools.ncu.source_summary import describe_kernels
from profzoo.tools.ncu.source_table import tabulate_source

PAGE = ["--page", "source", "--print-source"]
NO_CODE = (
    "holds no machine code of the most expensive kernels, so that nothing can be told by line: collect the section set "
    "with `sass: true`, as the set `source` has it"
)
NO_COUNTERS = "holds no counters of source lines: collect the section SourceCounters, as the set `source` does"


def tabulate_report(report: str, chosen: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of these launches of a report, and notes on what the report does not tell.

    Raises:
        DataError: the report holds no machine code at all, no counters of lines, or ncu cannot print it.
    """
    frames, lacking, notes = [], [], []
    for row in chosen.to_dict("records"):
        launch = int(row["id"])
        instructions = read_instructions(print_page(report, [*PAGE, "sass"], launch), report)
        if not instructions:
            lacking.append(str(row["function"]))
            continue
        try:
            lines = read_lines(print_page(report, [*PAGE, "cuda,sass"], launch), report)
        except DataError as error:
            # Machine instructions say as much without their lines.
            lines = []
            notes.append(f"the lines of {row['function']} are left out: {error}")
        frame = tabulate_source(instructions, lines)
        for name in reversed(source_columns.OF_KERNEL):
            frame.insert(0, name, row[name])
        frames.append(frame)
    if not frames:
        raise DataError(f"{report} {NO_CODE}")
    table = pd.concat(frames, ignore_index=True)
    if not {source_columns.SAMPLES, source_columns.EXECUTED} & set(table):
        raise DataError(f"{report} {NO_COUNTERS}")
    code = f"the report holds no machine code of {'; '.join(dict.fromkeys(lacking))}"
    return table, [*([code] if lacking else []), *notes]


def main(report: str, launches: str, kernels: int, csv: str, say: Callable[[str], object] = print) -> None:
    """Write the table of source lines, and say where the most expensive kernels spend their time.

    Args:
        report: report of ncu.
        launches: the exported table of the same section set.
        kernels: number of kernels, the most expensive first.
        csv: the table to write.
        say: function that prints a note for the user.
    """
    chosen = read_expensive(launches, kernels)
    table, notes = tabulate_report(report, chosen)
    for note in [*notes, *describe_kernels(table)]:
        say(f"{csv}: {note}")
    leading = [name for name in source_columns.LEADING if name in table]
    write_csv(table[[*leading, *(name for name in table if name not in leading)]], csv)
