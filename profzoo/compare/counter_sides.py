"""Reads what ncu counted of a cell on one side of a comparison, from the files of its folder as they are."""

from pathlib import Path

import pandas as pd

from profzoo.compare.counter_changes import CountedCell
from profzoo.compare.counter_quantities import COMPARED
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars
from profzoo.io import sidecars as fact
from profzoo.kernels import kernel_classes
from profzoo.launches import joined_step
from profzoo.tools.ncu import derived_metrics, export_schema
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.torch import owners

# Of the sidecar of ncu's launches: the file with all launches of the window, and the number of its steps.
NEEDS: fact.Needs = {"cell": {"window?": fact.SEVERAL}, "census?": fact.TEXT}
# Names of a cell's files after the phase: launches of the default section set, and launches of torch with their owners.
COUNTED, OWNED = ".ncu.csv", ".torch.launches.csv"


def read_counted_cell(counted: str | Path, items: float = 1.0) -> CountedCell | None:
    """Return what ncu counted of a cell; None if its section set has none of the compared counters.

    Launches have layers if torch attributed them on this side.

    counted: path of the cell's launches under ncu; the census and torch's launches lie beside it. items: data samples
    per step, by which sums are divided if the sides have different numbers of them.
    """
    path = Path(counted)
    if "mangled" not in reading.rows(path)[0]:
        # The section set measures ranges, which are no launches.
        return None
    table, facts = reading.read(path, export_schema.TABLE), sidecars.read_sidecar(f"{path}.json", NEEDS)
    named = facts.get("census")
    census = path.with_name(named) if named else None
    if census is not None and not census.exists():
        raise DataError(f"{path} needs {census.name} beside it, in which all launches of the step are: copy that too")
    if derived_metrics.derive_quantities(table, COMPARED).columns.empty or (census is None and GPU_TIME not in table):
        return None
    launches = export_schema.read_census(census) if census else table.sort_values("id", kind="stable")
    launches = launches.reset_index(drop=True)
    steps = facts["cell"].get("window", 1)
    owned = path.with_name(path.name.replace(COUNTED, OWNED))
    if owned.exists():
        launches = _with_owners(launches, [table], steps, owned)
    classes = kernel_classes.classify_all(launches["kernel"].unique())
    named = launches.assign(**{"class": launches["kernel"].map(classes), "range": launches["range"].fillna("")})
    return CountedCell(named, [table], steps * items)


def _with_owners(launches: pd.DataFrame, sets: list[pd.DataFrame], steps: int, owned: Path) -> pd.DataFrame:
    """Return the launches with `module` and `direction`, by the launches that torch attributed."""
    joined = joined_step.join_ncu_launches(launches, steps, sets, reading.read(owned, owners.TABLE), None).launches
    return launches.assign(module=joined["module"].to_numpy(), direction=joined["direction"].to_numpy())
