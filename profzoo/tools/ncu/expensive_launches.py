"""Chooses the launches to look at closely: of each of the most expensive kernels, the longest one."""

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import csv_tables, text_files
from profzoo.tools.ncu import export_schema
from profzoo.tools.ncu.derived_metrics import GPU_TIME

COLUMNS = ("place", "id", "kernel", "function", "mangled")


def read_expensive(path: str, kernels: int) -> pd.DataFrame:
    """Return one launch of each of the most expensive kernels of an exported section set, as choose_launches does.

    Raises:
        DataError: the table cannot be read, or is of ranges instead of launches.
    """
    heading = text_files.read_text(path, csv_tables.AGAIN).partition("\n")[0]
    if "mangled" not in heading.split(","):
        raise DataError(f"{path} is of a section set that measures ranges, which are no kernels: choose another set")
    return choose_launches(csv_tables.read(path, export_schema.TABLE), kernels, path)


def choose_launches(table: pd.DataFrame, kernels: int, where: str) -> pd.DataFrame:
    """Return one launch of each of the most expensive kernels, the most expensive kernel first.

    Args:
        table: an exported section set; launches of further runs are in other reports, and are only counted.
        kernels: the largest number of kernels.
        where: name of the table, for messages.

    Returns: COLUMNS, with `place` from 1 and `id` the number of the launch in the report.

    Raises:
        DataError: the set did not measure the time of launches.

    >>> three = pd.DataFrame({"id": [0, 1, 2], "mangled": ["a", "b", "b"], GPU_TIME: [5, 2, 4]})
    >>> three = three.assign(kernel="k", function="f")
    >>> choose_launches(three, 1, "x")[["place", "id", "mangled"]].values.tolist()
    [[1, 2, 'b']]
    """
    if GPU_TIME not in table or table[GPU_TIME].isna().all():
        raise DataError(
            f"{where} has no {GPU_TIME}, by which the most expensive kernels are chosen: add it to the set's metrics"
        )
    times = pd.to_numeric(table[GPU_TIME], errors="coerce")
    stands_for = pd.to_numeric(table["multiplicity"], errors="coerce").fillna(1.0) if "multiplicity" in table else 1.0
    costs = (times * stands_for).groupby(table["mangled"]).sum().sort_values(ascending=False, kind="stable")
    here = table[table["run"].eq(1)] if "run" in table else table
    longest = times[here.index].groupby(here["mangled"]).idxmax()
    chosen = [name for name in costs.index if name in longest.index][:kernels]
    found = table.loc[longest[chosen], list(COLUMNS[1:])].reset_index(drop=True)
    found.insert(0, "place", range(1, len(found) + 1))
    return found
