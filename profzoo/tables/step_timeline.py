"""Writes the timeline of one typical step of a cell, small enough for the page, and the table of its tracks."""

import json
from collections.abc import Sequence
from pathlib import Path

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.tables import stream_tracks
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
        on_cpu, command = facts.get("device_type") == "cpu", facts.get("command", [])
        found[0]["not_collected"] = _explain(found[0]["not_collected"], on_cpu, command)
    Path(output).write_text(json.dumps(found[0] if found else {}, separators=(",", ":")) + "\n", encoding="utf-8")
    write_csv(found[1] if found else tracks.TABLE.empty(), csv)


def _explain(reasons: Sequence[str], on_cpu: bool, command: object) -> list[str]:
    """Return the reasons why tracks are missing, without advice that changes nothing for this cell.

    on_cpu: whether it ran on a CPU. command: command line of nsys, as in a sidecar.
    """
    kept = [why for why in reasons if not (on_cpu and why == stream_tracks.NO_WORK)]
    return [requested_events.explain(why, command) for why in kept]
