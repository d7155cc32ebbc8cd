"""Writes the timeline of one typical step of a cell, small enough for the page, and the table of its tracks."""

import json
from pathlib import Path

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.tables.track_suppliers import SUPPLIERS
from profzoo.tools.nsys import median_step, requested_events, tracks
from profzoo.tools.nsys.trace import explain_no_steps


def main(sqlite: str, report_sidecar: str, output: str, csv: str) -> None:
    """Read the export and its report's sidecar; write the timeline and the table of tracks.

    For a trace without steps, the timeline is an empty object and the table has no rows.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    whole_run = facts["capture"] == "run"
    found = median_step.read_step_with_tracks(sqlite, whole_run, SUPPLIERS)
    if found is None:
        # Into the log: the export of the same trace says it to the user.
        print(f"{output} is empty, as {sqlite} {explain_no_steps(sqlite, whole_run)}")
    else:
        reasons = found[0]["not_collected"]
        found[0]["not_collected"] = [requested_events.explain(why, facts.get("command", [])) for why in reasons]
    Path(output).write_text(json.dumps(found[0] if found else {}, separators=(",", ":")) + "\n", encoding="utf-8")
    write_csv(found[1] if found else tracks.TABLE.empty(), csv)
