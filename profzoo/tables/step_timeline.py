"""Writes the timeline of one typical step of a cell, small enough for the page."""

import json
from pathlib import Path

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json
from profzoo.tools.nsys import median_step
from profzoo.tools.nsys.trace import explain_no_steps


def main(sqlite: str, report_sidecar: str, output: str) -> None:
    """Read the export and its report's sidecar; write the timeline, an empty object for a trace without steps."""
    whole_run = read_json(report_sidecar, {"capture": fact.TEXT})["capture"] == "run"
    found = median_step.read_typical_step(sqlite, whole_run)
    if found is None:
        # Into the log: the export of the same trace says it to the user.
        print(f"{output} is empty, as {sqlite} {explain_no_steps(sqlite, whole_run)}")
    Path(output).write_text(json.dumps(found or {}, separators=(",", ":")) + "\n", encoding="utf-8")
