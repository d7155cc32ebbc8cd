"""Exports torch.profiler's operators and launches to CSV files: by range, by owner, and by type of the inputs."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.scripts import write_csv
from profzoo.tools.torch import dtypes, host_calls, losses, owners, trace, user_ranges
from profzoo.tools.torch import tables as torch_tables

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

FACTS: fact.Needs = {
    "cell": {"profiler": {"memory": fact.FLAG}},
    "device_type": fact.TEXT,
    "traced_steps?": fact.COUNT,
    "left_out?": fact.TEXTS,
}
KERNEL = list(trace.DEVICE_KINDS).index("kernel")
# A session loses its first kernels, so with more steps the later ones are complete.
LONGER = "raise torch.window, so that later steps are whole"
NO_STEP = (
    "holds no step of the window, so no values per step are known, and launches have no range: the program opened no "
    "range while torch.profiler recorded (see the log of the profiling job)"
)


def main(
    operators: str, traced: str, sidecar: str, outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read the recorder's table and trace, write CSV: `csv`, `launches`, `modules`, `ranges` and `dtypes`.

    `modules` own the launches. `ranges` are those that the program opened itself; where there are any, `launches` has
    the one of each launch. `dtypes` has operators by the types of their inputs.

    Raises:
        DataError: there is no operator, or no kernel although the cell ran on a GPU; the profiler lost kernels of every
            step; or a launch has impossible times.
    """
    facts = read_facts(sidecar, FACTS)
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
    write_csv(dtypes.tabulate_dtypes(whole, gpu), outputs["dtypes"])


def _whole(events: trace.Trace, traced: str, facts: "Sidecar") -> tuple[trace.Trace, bool]:
    """Return the trace without steps that lack kernels, and whether there were any.

    Raises:
        DataError: no complete step is left, the sidecar does not mention the loss, or a launch has impossible times.
    """
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
            f"{traced}: torch.profiler lost kernels, {told}, but its sidecar does not say so: {trace.AGAIN}"
        )
    return losses.drop_steps(events, sorted(found.lacking)), True
