"""Exports what nsys collected of the GPU over time: sampled metrics, their means per step, and memory in use."""

from collections.abc import Callable

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.nsys import gpu_memory, gpu_metric_tables, gpu_metrics, requested_events


def main(
    sqlite: str, report_sidecar: str, metrics: str, steps: str, memory: str, say: Callable[[str], object] = print
) -> None:
    """Read the export and its report's sidecar; write the tables, which have no row of what was not collected."""
    facts = read_json(report_sidecar, {"capture": fact.TEXT})
    whole_run = facts["capture"] == "run"
    samples, summary, of_metrics = gpu_metric_tables.tabulate_metrics(sqlite, whole_run)
    events, of_memory = gpu_memory.tabulate_memory(sqlite, whole_run)
    if facts.get("device_type") == "cpu":
        say(f"{metrics} and {memory} have no row, as the cell ran on a CPU")
        of_metrics, of_memory = [], []
    asked = [
        requested_events.was_asked_for(table, facts.get("command"))
        for table in (gpu_metrics.SAMPLES, gpu_memory.EVENTS)
    ]
    for path, lines, own in zip((metrics, memory), (of_metrics, of_memory), asked, strict=True):
        # One rule makes all tables: of a kind that nobody asked for, beside one that was asked for, only the log tells.
        tell = print if any(asked) and not own else say
        for line in lines:
            tell(f"{path}: {line}")
    write_csv(samples, metrics)
    write_csv(summary, steps)
    write_csv(events, memory)
