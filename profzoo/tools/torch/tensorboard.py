"""Lays traces out as TensorBoard's profiler plugin reads them, as torch.profiler.tensorboard_trace_handler does."""

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.tools.torch.cycles import TRACE

# The plugin takes what is before the number as the worker, and the number, a time in ns, as the worker's cycle.
NAME = "{worker}.{ns}.pt.trace.json.gz"
FACTS: fact.Needs = {"started": fact.TEXT, "cell": {"profiler": {}}}


def main(traced: str, sidecar: str, folders: Sequence[str], output: str) -> None:
    """Copy the traces of all cycles to a folder, in their order.

    folders: that of earlier cycles, if there were several. output: folder that TensorBoard is given as `--logdir`.

    Raises:
        DataError: the trace of a cycle is missing.
    """
    facts = read_facts(sidecar, FACTS)
    earlier = facts["cell"]["profiler"].get("repeat", 1) - 1 if folders else 0
    traces = [*(Path(folders[0]) / TRACE.format(cycle) for cycle in range(earlier)), Path(traced)]
    if missing := [path for path in traces if not path.exists()]:
        raise DataError(f"there is no {missing[0]}: collect the trace again")
    home = Path(output)
    home.mkdir(parents=True)
    began = int(datetime.datetime.fromisoformat(facts["started"]).timestamp() * 1e9)
    worker = f"{Path(traced).parent.name}_{Path(traced).name.partition('.')[0]}"
    for cycle, path in enumerate(traces):
        shutil.copyfile(path, home / NAME.format(worker=worker, ns=began + cycle))
