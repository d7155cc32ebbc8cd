"""Names the files that nsys leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.tool_types import NsysSettings


def exported_files(own: "NsysSettings") -> Sequence[str]:
    """Return the tables of launches, streams, copies and simulated steps, and the reports of `nsys stats`."""
    tables = [f"{{phase}}.{name}.csv" for name in ("nsys", "nsys-streams", "nsys-copies", "replay", "host")]
    return [*tables, *(f"{{phase}}.nsys/{report}.csv" for report in own["reports"])]


def table_inputs(own: "NsysSettings") -> Mapping[str, str]:
    """Return the table of launches with its sidecar, the parts of the step, and the cell's kernel table."""
    return {
        "nsys": "{phase}.nsys.csv",
        "steps": "{phase}.nsys-steps.csv",
        "kernels": "{phase}.kernels.csv",
        "nsys_sidecar": "{phase}.nsys.csv.json",
    }


def provided_files(own: "NsysSettings") -> Mapping[str, str]:
    """Return the table of launches, the trace, and the tables and simulations that are made of the trace."""
    return {
        "launch_times": "{phase}.nsys.csv",
        "trace_database": "{phase}.nsys.sqlite",
        "trace_database_sidecar": "{phase}.nsys-rep.json",
        "perfetto_trace": "{phase}.nsys.trace.json.gz",
        "timeline": "{phase}.timeline.json",
        "program": "{phase}.program.npz",
        "replay": "{phase}.replay.csv",
        "host": "{phase}.host.csv",
        "ranks": "{phase}.ranks.csv",
    }


def required_files(own: "NsysSettings") -> Sequence[str]:
    """Return the table of launches with its sidecar, and the parts of the step."""
    return ["{phase}.nsys.csv", "{phase}.nsys.csv.json", "{phase}.nsys-steps.csv"]


def name_parts(own: "NsysSettings") -> Sequence[str]:
    """Return the parts of nsys's file names between dots."""
    tables = ["nsys", "nsys-steps", "nsys-ranks", "nsys-streams", "nsys-copies", "ranks", "kernels", "replay", "host"]
    return [*tables, "timeline", "program", "npz", "nsys-rep", "sqlite", "trace", "gz"]
