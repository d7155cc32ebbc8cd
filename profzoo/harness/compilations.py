"""Tells what torch.compile compiled in this process: functions, lines, reasons to compile again, and graph breaks.

torch keeps a record of each compilation (torch._dynamo.utils). Code behind a graph break is compiled as a function of
its own, whose name and first line tell where the break is.
"""

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from profzoo.harness.source_places import PlaceFinder

if TYPE_CHECKING:
    from profzoo.cell.job_types import Compilation

RECORDS = "torch._dynamo.utils"
RESUMED = "torch_dynamo_resume_in_"
# Most compilations that become facts, and the longest reason.
MOST, LONGEST = 100, 160


def read_compilations(window_began_ns: int, window_ns: int) -> "list[Compilation]":
    """Return the compilations of this process in their order; empty if nothing was compiled.

    window_began_ns: start of the window by the host's monotonic clock; window_ns: its duration.
    """
    began_ns = window_began_ns + time.time_ns() - time.perf_counter_ns()
    found: list[Compilation] = []
    records: Any = sys.modules.get(RECORDS)
    with suppress(Exception):
        finder = PlaceFinder()
        for one in records.get_compilation_metrics() if records else ():
            began = (one.start_time_us or 0) * 1000
            name = str(one.co_name)
            found.append(
                {
                    "function": name,
                    "file": finder.shorten(str(one.co_filename)),
                    "line": int(one.co_firstlineno or 0),
                    "resumed": name.startswith(RESUMED),
                    "why_again": _first_line(one.recompile_reason),
                    "seconds": (one.duration_us or 0) / 1e6,
                    "in_window": began_ns <= began <= began_ns + window_ns,
                }
            )
    return found[:MOST]


def _first_line(reason: str | None) -> str:
    """Return the first line of a reason without the number of the compiled code and the source line behind it.

    >>> _first_line("0/0: k == 3      # y = x * k  # model.py:4 in f"), _first_line(None)
    ('k == 3', '')
    """
    lines = (reason or "").strip().splitlines() or [""]
    number, colon, told = lines[0].partition(": ")
    text = told if colon and number.replace("/", "").isdigit() else lines[0]
    return text.partition("  #")[0].strip()[:LONGEST]
