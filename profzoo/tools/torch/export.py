"""Exports torch.profiler's operators, and its trace's launches, by range to one tidy CSV and by owner to another."""

from collections.abc import Callable, Mapping
from typing import Any

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools.torch import host_calls, losses, owners, trace, user_ranges
from profzoo.tools.torch import tables as torch_tables

FACTS: fact.Needs = {
    "cell": {"profiler": {"memory": fact.FLAG}},
    "device_type": fact.TEXT,
    "traced_steps?": fact.COUNT,
    "left_out?": fact.TEXTS,
}
KERNEL = list(trace.DEVICE_KINDS).index("kernel")
# A session loses its first kernels, so that of more steps the later ones are whole.
LONGER = "raise torch.window, so that later steps are whole"
NO_STEP = (
    "holds no step of the window, so that nothing is known per step, and launches have no range: the program opened "
    "none while torch.profiler recorded (see the log of the profiling job)"
)


def main(
    operators: str, traced: str, sidecar: str, outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read the recorder's table and trace, write CSV: `csv`, `launches`, the `modules` that own them, and `ranges`.

    `ranges` are those that the program opened itself; where there are any, `launches` has the one of each launch.

    Raises:
        DataError: there is no operator, or no kernel although the cell ran on a GPU; the profiler lost kernels of every
            step; or a launch has times that it cannot have had.
    """
    facts = read_json(sidecar, FACTS)
    raw = reading.read(operators, torch_tables.OPERATORS)
    if raw.empty:
        raise DataError(f"{operators} holds no operator: torch.profiler recorded nothing in the window")
    profiler, gpu = facts["cell"]["profiler"], facts["device_type"] == "cuda"
    events = trace.read_trace(traced, say)
    if gpu and not (events.launches["kind"] == KERNEL).any():
        raise DataError(
            f"{traced} holds no kernel although the cell ran on a GPU: CUPTI could not trace it, "
            "most often because another profiler holds it; see the log of the profiling job"
        )
    if not host_calls.count_steps(events):
        say(f"{outputs['csv']}: the trace {NO_STEP}")
    whole, lacking = _whole(events, traced, facts) if gpu else (events, False)
    for line in facts.get("left_out", []):
        say(f"{outputs['csv']}: without {line}")
    table = torch_tables.tidy_operators(raw, whole, profiler, gpu, lacking)
    write_csv(table, outputs["csv"])
    launches = owners.tabulate_launches(whole) if gpu else owners.tabulate_operators(whole)
    found = user_ranges.find_user_ranges(whole)
    if found is not None:
        launches = user_ranges.add_user_ranges(launches, whole, found, gpu)
    write_csv(launches, outputs["launches"])
    write_csv(user_ranges.tabulate_user_ranges(found), outputs["ranges"])
    write_csv(owners.tabulate_modules(whole), outputs["modules"])


def _whole(events: trace.Trace, traced: str, facts: Mapping[str, Any]) -> tuple[trace.Trace, bool]:
    """The trace without the steps of which kernels are lost, and whether there are such."""
    if why := losses.find_impossible(events):
        raise DataError(f"{traced}: {why}, {trace.WRONG}: {trace.AGAIN}")
    found = losses.find_losses(events)
    if not found.lacking and not found.outside:
        return events, False
    told = "; ".join(found.told())
    left = found.steps - len(found.lacking)
    if not left or found.outside:
        raise DataError(f"{traced}: torch.profiler lost kernels, {told}: {LONGER}")
    if facts.get("traced_steps") != left:
        raise DataError(
            f"{traced}: torch.profiler lost kernels, {told}, of which its sidecar says nothing: {trace.AGAIN}"
        )
    return losses.drop_steps(events, sorted(found.lacking)), True
