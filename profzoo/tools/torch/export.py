"""Exports torch.profiler's operators, and its trace's kernels by range, to one tidy CSV."""

from profzoo.errors import DataError
from profzoo.files import read_json, write_csv
from profzoo.reading import facts as fact
from profzoo.reading import tables as reading
from profzoo.tools.torch import tables as torch_tables


def main(operators: str, trace: str, sidecar: str, csv: str) -> None:
    """Read the recorder's table and trace, write the CSV."""
    facts = read_json(sidecar, {"cell": {"profiler": {"memory": fact.FLAG}}, "device_type": fact.TEXT})
    raw = reading.read(operators, torch_tables.OPERATORS)
    if raw.empty:
        raise DataError(f"{operators} holds no operator: torch.profiler recorded nothing in the window")
    profiler, gpu = facts["cell"]["profiler"], facts["device_type"] == "cuda"
    table = torch_tables.tidy(raw, torch_tables.read_trace(trace), profiler, gpu)
    if gpu and not (table["kind"] == "kernel").any():
        raise DataError(
            f"{trace} holds no kernel although the cell ran on a GPU: CUPTI could not trace it, "
            "most often because another profiler holds it; see the log of the profiling job"
        )
    write_csv(table, csv)
