"""Takes the operations of launches from earlier reports on the same GPU, so that ncu need not count them again.

Operations need passes of ncu besides that of all other counters. They follow from a kernel's code and its launch
configuration, unless the kernel's arguments change its work, and then its time differs too. A configuration is known if
an earlier report counted it with the same torch on the same GPU. All its launches there must have the same operations,
and they must have taken as long as they take here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables
from profzoo.tools.ncu import export_schema
from profzoo.tools.ncu.quantities import GPU_TIME, QUANTITIES
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

if TYPE_CHECKING:
    from profzoo.cell.job_types import KnownOperations, Plan, Sidecar

# Metrics that count operations, each kind of which needs a pass of its own.
OPERATIONS = {
    name for quantity in QUANTITIES.values() if quantity.unit == "flop" for one in quantity.sums for name in one.factors
}
# Counted launches of one configuration may differ by this share of their operations.
AGREEING = 1e-3
# Longest over shortest time of launches that do the same work, and of one kernel in two cells.
EVEN, SAME_WORK = 1.3, 1.5
# Launches as short as this differ by more, whatever they do.
SHORT_NS = 5000
# Facts of a report's sidecar that have to be the same: they decide which machine code runs.
SAME = ("gpu", "torch", "cuda")


def is_operation(metric: str) -> bool:
    """Return whether a metric, with any of ncu's endings, counts operations.

    >>> is_operation("smsp__sass_thread_inst_executed_op_ffma_pred_on.max"), is_operation("lts__t_bytes.sum")
    (True, False)
    """
    return f"{metric.rpartition('.')[0]}.sum" in OPERATIONS


def read_counted(results: Path, like: "Sidecar") -> list[tuple[str, pd.DataFrame, Mapping[str, str]]]:
    """Read the counted launches of all cells under results/ that ran on the same GPU with the same software.

    like: facts of the census' sidecar. Tables that cannot be read are passed over, because they only save time.

    Returns: for each table its name, its launches whose operations were counted there, and the units of its metrics.
    """
    found = []
    for path in sorted(results.glob("*/*.ncu.*.csv")):
        try:
            facts = read_facts(f"{path}.json")
            if any(facts.get(name) != like.get(name) for name in SAME) or facts.get("ranks"):
                continue
            # Most tables count none, and are not read further.
            with path.open(encoding="utf-8") as file:
                if not any(is_operation(name) for name in file.readline().rstrip("\n").split(",")):
                    continue
            table = csv_tables.read(path, export_schema.TABLE)
        except (DataError, OSError, ValueError):
            continue
        units: Mapping[str, str] = facts.get("units", {})  # type: ignore[assignment]
        found.append((f"{path.parent.name}/{path.name}", _counted_here(table, facts.get("plan")), units))
    return found


def _counted_here(table: pd.DataFrame, plan: "Plan | None") -> pd.DataFrame:
    """Return the rows whose operations were counted, not taken from earlier reports."""
    if not plan or not (known := plan.get("known")):
        return table
    taken = pd.MultiIndex.from_frame(_as_table(known)[KEYS])
    return table[~pd.MultiIndex.from_frame(table[KEYS]).isin(taken)]


def find_known(
    census: pd.DataFrame, counted: Sequence[tuple[str, pd.DataFrame, Mapping[str, str]]], metrics: Sequence[str]
) -> "KnownOperations":
    """Find the launch configurations of a census whose operations earlier reports have counted.

    Args:
        census: one row per launch of the window, with the launch configuration and GPU_TIME in ns.
        counted: result of read_counted; later tables replace earlier ones.
        metrics: the operations that the section set counts; a table that lacks one of them tells nothing.
    """
    here = census.groupby(KEYS, dropna=False)[GPU_TIME].agg(["min", "max", "median"])
    here = here[_alike(here["min"], here["max"], EVEN)]
    kept, units, sources = [], dict[str, str](), []
    for name, table, said in counted:
        if not set(metrics) <= set(table.columns):
            continue
        columns = [column for column in table if is_operation(column) and pd.api.types.is_numeric_dtype(table[column])]
        whole = table.dropna(subset=[*metrics, GPU_TIME])
        groups = whole.groupby(KEYS, dropna=False)
        least, most = groups[columns].min(), groups[columns].max()
        agree = ((most - least) <= AGREEING * most.abs())[list(metrics)].all(axis=1)
        there = groups[GPU_TIME].median()
        both = there.index.intersection(here.index)
        same = _alike(there[both], here.loc[both, "median"], SAME_WORK) & agree[both]
        if not (chosen := both[same.to_numpy()]).empty:
            kept.append(most.loc[chosen])
            units |= {column: said[column] for column in columns if column in said}
            sources.append(name)
    if not kept:
        return {"columns": [], "rows": [], "units": {}, "sources": []}
    known = pd.concat(kept)
    known = known[~known.index.duplicated(keep="last")].reset_index()
    values = known.astype(object).where(known.notna(), None)
    return {
        "columns": list(known.columns),
        "rows": [[_plain(value) for value in row] for row in values.to_numpy().tolist()],
        "units": units,
        "sources": sources,
    }


def _alike(one: pd.Series, other: pd.Series, ratio: float) -> pd.Series:
    """Whether times, in ns, differ by no more than launches of the same work do."""
    longest, shortest = np.maximum(one, other), np.minimum(one, other)
    return (longest <= ratio * shortest) | (longest <= SHORT_NS)


def _plain(value: object) -> str | float | None:
    """Convert a value to one that JSON can hold; whole numbers stay whole."""
    if value is None or isinstance(value, str):
        return value
    number = float(value)  # type: ignore[arg-type]
    return int(number) if number.is_integer() else number


def _as_table(known: "KnownOperations") -> pd.DataFrame:
    """Return one row per known configuration, with the types of an exported table."""
    table = pd.DataFrame(known["rows"], columns=list(known["columns"]))
    return table.astype({key: "Int64" for key in KEYS if key.startswith("smem_")})


def known_kernels(census: pd.DataFrame, known: "KnownOperations") -> list[str]:
    """Return the mangled names of kernels all of whose launch configurations are known, sorted.

    ncu chooses launches by kernel, so a kernel with one unknown configuration is counted as a whole.
    """
    if not known["rows"]:
        return []
    there = pd.MultiIndex.from_frame(census[KEYS]).isin(pd.MultiIndex.from_frame(_as_table(known)[KEYS]))
    whole = pd.Series(there, census.index).groupby(census["mangled"]).all()
    return sorted(whole.index[whole])


def fill_operations(table: pd.DataFrame, known: "KnownOperations") -> pd.DataFrame:
    """Return the launches of a report with the operations that its plan took from earlier ones.

    Values that were counted stay. A launch whose configuration the plan does not know, because a library chose another
    kernel than in the census, stays without operations.
    """
    values = _as_table(known).set_index(KEYS)
    found = values.reindex(pd.MultiIndex.from_frame(table[KEYS])).set_axis(table.index)
    filled = {
        name: table[name].where(table[name].notna(), found[name]) if name in table else found[name] for name in values
    }
    return table.assign(**filled)
