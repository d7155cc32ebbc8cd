"""Says of each row of a cell's tables in how many of the traced steps it launches anything, where steps differ."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.io.common_columns import IN_STEPS, OF_STEPS
from profzoo.launches.cross_tool import GRID
from profzoo.launches.joined_step import KERNEL, OWNER
from profzoo.range_names import STEP
from profzoo.tables.layers import NODE, path

OPERATOR = "operator"
KEYS = [*OWNER, "kernel", *GRID]
COUNT = "count"


@dataclass(frozen=True)
class StepRows:
    """What steps that differ launched: a row per step, owner and launch configuration, with KEYS and `step`.

    steps: number of steps, also of those that launched nothing.
    """

    launched: pd.DataFrame
    steps: int

    def add_to_rows(self, table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
        """Return a table with IN_STEPS and OF_STEPS of its rows, which differ in the columns `by`."""
        keys = [name for name in by if name in KEYS]
        return self._joined(table, self.launched, keys)

    def add_to_tree(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a tree of layers with IN_STEPS and OF_STEPS, which count launches of modules below, too."""
        own = self.launched[[*NODE, STEP]].drop_duplicates().astype(dict.fromkeys(NODE, "object"))
        paths = own["module"].map(path)
        deepest = int(paths.str.len().max()) if len(own) else 0
        parts = [own.assign(module=paths.str[depth])[paths.str.len() > depth] for depth in range(deepest)]
        return self._joined(table, pd.concat(parts) if parts else own, NODE)

    def _joined(self, table: pd.DataFrame, launched: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
        found = launched.groupby(list(keys), sort=False, dropna=False, observed=True)[STEP].nunique().rename(IN_STEPS)
        plain = table.astype(dict.fromkeys([name for name in keys if name in OWNER], "object"))
        counted = plain[list(keys)].merge(found.reset_index(), on=list(keys), how="left")[IN_STEPS]
        # A row without kernels, such as of copies, is not counted.
        return table.assign(**{IN_STEPS: counted.astype("Int64").to_numpy(), OF_STEPS: self.steps})


def step_rows_of_nsys(launches: pd.DataFrame, steps: int) -> StepRows:
    """Return what the steps of nsys launched; launches: of launches.differing_steps."""
    return StepRows(_plain(launches[[*KEYS, STEP]]).drop_duplicates(), steps)


def step_rows_of_torch(counted: Iterable[pd.DataFrame], steps: int) -> StepRows | None:
    """Return what the steps of torch launched; None if all launched the same; counted: from count_launches."""
    parts = list(counted)
    if not parts:
        return None
    keys = [*KEYS, STEP]
    sums = pd.concat(parts, ignore_index=True).groupby(keys, sort=False, dropna=False, observed=True)[COUNT].sum()
    table = sums.reset_index()
    held = table.groupby(KEYS, sort=False, dropna=False)[COUNT].agg(["min", "max", "size"])
    alike = held["min"].eq(held["max"]) & held["size"].eq(steps)
    return None if alike.all() else StepRows(table[keys], steps)


def count_launches(part: pd.DataFrame) -> pd.DataFrame:
    """Return the number of kernels (on a CPU: calls of operators) by step and KEYS; part: rows of torch's launches."""
    rows = part[part["kind"].isin([KERNEL, OPERATOR]) & part[STEP].notna()].rename(columns={"name": "kernel"})
    grouped = _plain(rows[[*KEYS, STEP]]).groupby([*KEYS, STEP], sort=False, dropna=False, observed=True)
    return grouped.size().rename(COUNT).reset_index()


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose texts are no categories, and whose numbers compare with those of other tables."""
    return rows.astype(dict.fromkeys([*OWNER, "kernel"], "object") | dict.fromkeys(GRID, np.float64))
