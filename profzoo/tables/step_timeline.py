"""Writes the timeline of one typical step of a cell, small enough for the page to hold."""

import json
from pathlib import Path

from profzoo.files import read_json
from profzoo.reading import facts as fact
from profzoo.tools.nsys import typical


def main(sqlite: str, report_sidecar: str, output: str) -> None:
    """Read the export and the sidecar of its report, write the timeline; an empty object of a trace without steps."""
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    found = typical.read(sqlite, facts["capture"] == "run")
    Path(output).write_text(json.dumps(found or {}, separators=(",", ":")) + "\n", encoding="utf-8")
