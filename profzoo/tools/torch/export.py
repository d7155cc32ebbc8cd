"""Exports torch.profiler's operators, and its trace's launches, by range to one tidy CSV and by owner to another."""

from collections.abc import Callable, Mapping

from profzoo.errors import DataError
from profzoo.files import read_json, write_csv
from profzoo.reading import facts as fact
from profzoo.reading import tables as reading
from profzoo.tools.torch import calls, owners, trace
from profzoo.tools.torch import tables as torch_tables

NO_STEP = (
    "holds no step of the window, so that nothing is known per step, and launches have no range: the program opened "
    "none while torch.profiler recorded (see the log of the profiling job)"
)


def main(
    operators: str, traced: str, sidecar: str, outputs: Mapping[str, str], say: Callable[[str], object] = print
) -> None:
    """Read the recorder's table and trace, write CSV: `csv`, `launches`, and the `modules` that own them."""
    facts = read_json(sidecar, {"cell": {"profiler": {"memory": fact.FLAG}}, "device_type": fact.TEXT})
    raw = reading.read(operators, torch_tables.OPERATORS)
    if raw.empty:
        raise DataError(f"{operators} holds no operator: torch.profiler recorded nothing in the window")
    profiler, gpu = facts["cell"]["profiler"], facts["device_type"] == "cuda"
    events = trace.read(traced)
    table = torch_tables.tidy(raw, events, profiler, gpu)
    if gpu and not (table["kind"] == "kernel").any():
        raise DataError(
            f"{traced} holds no kernel although the cell ran on a GPU: CUPTI could not trace it, "
            "most often because another profiler holds it; see the log of the profiling job"
        )
    if not calls.steps_of(events):
        say(f"{outputs['csv']}: the trace {NO_STEP}")
    write_csv(table, outputs["csv"])
    write_csv(owners.of_launches(events) if gpu else owners.of_operators(events), outputs["launches"])
    write_csv(owners.modules(events), outputs["modules"])
