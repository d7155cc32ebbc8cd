"""Names the files that nsys leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profzoo.cell.tool_types import NsysSettings


def exported_files(own: "NsysSettings") -> Sequence[str]:
    """Return tables of launches, streams, copies, simulated steps, threads and samples, and reports of `nsys stats`."""
    sampled = {"gpu_metrics": ("nsys-metrics", "nsys-metrics-steps"), "cuda_memory_usage": ("nsys-memory",)}
    over_time = [name for setting, names in sampled.items() if own.get(setting) for name in names]
    if own["sample"] != "none" or own["cpuctxsw"] != "none":
        over_time.append("nsys-threads")
    always = ("nsys", "nsys-streams", "nsys-copies", "replay", "host", "nsys-idle")
    tables = [f"{{phase}}.{name}.csv" for name in (*always, *over_time)]
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
    tables += [f"nsys-{name}" for name in ("threads", "off-cpu", "samples", "idle")]
    tables += ["nsys-metrics", "nsys-metrics-steps", "nsys-memory", "nsys-tracks", "timeline", "first-plan"]
    return [*tables, "program", "npz", "nsys-rep", "sqlite", "trace", "gz"]
