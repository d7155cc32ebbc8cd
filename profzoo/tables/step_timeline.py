"""Writes the timeline of one typical step of a cell, small enough for the page to hold."""

import json
from pathlib import Path

from profzoo.files import read_json
from profzoo.reading import facts as fact
from profzoo.tools.nsys import typical
from profzoo.tools.nsys.trace import without_steps


def main(sqlite: str, report_sidecar: str, output: str) -> None:
    """Read the export and the sidecar of its report, write the timeline; an empty object of a trace without steps."""
    whole_run = read_json(report_sidecar, {"capture": fact.TEXT})["capture"] == "run"
    found = typical.read(sqlite, whole_run)
    if found is None:
        # Into the log: the export of the same trace says it to the user.
        print(f"{output} is empty, as {sqlite} {without_steps(sqlite, whole_run)}")
    Path(output).write_text(json.dumps(found or {}, separators=(",", ":")) + "\n", encoding="utf-8")
