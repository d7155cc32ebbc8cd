"""Finds the operations of a program that correspond to rows of a kernel table."""

from functools import cached_property

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.nsys.launches import unpack_configurations
from profzoo.what_if.program import Program
from profzoo.what_if.trace_events import KERNEL


class Operations:
    """The kernels of a program by launch configuration and range."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def keys(self) -> pd.DataFrame:
        """Return one row per operation with `range` and CONFIGURATION."""
        gpu = self.program.gpu
        columns = unpack_configurations(gpu)
        names = pd.Series(columns["mangled"]).map(self.program.kernels).fillna("")
        parts = np.array(["", *PARTS])[self.program.host["part"].to_numpy()[gpu["host"]]]
        return pd.DataFrame({**columns, "mangled": names, "range": parts})[["range", *CONFIGURATION]]

    @cached_property
    def kernels(self) -> np.ndarray:
        """Return one flag per operation: it is a kernel, and does not communicate."""
        gpu = self.program.gpu
        return (gpu["kind"] == KERNEL).to_numpy() & ~gpu["talking"].to_numpy(dtype=bool)

    def of(self, rows: pd.DataFrame) -> np.ndarray:
        """Return for each operation the index of its row in `rows`, -1 if no row matches.

        If a configuration was launched more often than the rows say, only so many operations match, evenly spread.

        Args:
            rows: rows of a table of kernels: CONFIGURATION, `launches` per step and, if the table has it, `range`.
        """
        by = ["range", *CONFIGURATION] if "range" in rows and self._have(rows) else CONFIGURATION
        mine = self.keys[by].astype({"mangled": object})
        places = pd.Series(np.arange(len(rows)), index=pd.MultiIndex.from_frame(rows[by].astype({"mangled": object})))
        first = places.groupby(level=by, sort=False).first()
        found = first.reindex(pd.MultiIndex.from_frame(mine)).fillna(-1).to_numpy(dtype=np.int64)
        found = np.where(self.kernels, found, -1)
        wanted = rows["launches"].to_numpy(dtype=float)
        # Rows with equal keys, such as several operators of a layer, share the first of them.
        alike = first.reindex(places.index).to_numpy(dtype=np.int64)
        wanted = np.bincount(alike, weights=wanted, minlength=len(rows)) * self.program.steps
        return np.where(spread_evenly(found, wanted), found, -1)

    def _have(self, rows: pd.DataFrame) -> bool:
        """Return whether the trace has all ranges of the rows; operations of a CUDA graph have no range."""
        return bool(rows["range"].isin(self.keys["range"][self.kernels].unique()).all())


def spread_evenly(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Select `wanted` operations of each row, evenly spread; found: per operation the index of its row, or -1.

    >>> spread_evenly(np.array([0, 0, 1, 0, 0]), np.array([2.0, 9.0]))
    array([False,  True,  True, False,  True])
    """
    there = found >= 0
    counts = np.bincount(found[there], minlength=len(wanted))
    part = np.minimum(wanted / np.maximum(counts, 1), 1.0)[found]
    rank = pd.Series(found).groupby(found).cumcount().to_numpy()
    # The small term makes three times one third reach 1 in spite of rounding.
    return there & (np.floor((rank + 1) * part + 1e-9) > np.floor(rank * part + 1e-9))
