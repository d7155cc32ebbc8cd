"""Exports what nsys collected of the GPU over time: sampled metrics, their means per step, and memory in use."""

from collections.abc import Callable

from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.nsys import gpu_memory, gpu_metric_tables


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
    for path, lines in ((metrics, of_metrics), (memory, of_memory)):
        for line in lines:
            say(f"{path}: {line}")
    write_csv(samples, metrics)
    write_csv(summary, steps)
    write_csv(events, memory)
