"""Makes the table of layers across the zoo from that of every cell, per step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from profzoo.files import read_json, write_csv
from profzoo.tables import cell_tables, layers
from profzoo.tables.across import LAYERS
from profzoo.tables.counted_steps import NEEDS, profiled_steps

SUMS = {"calls": "calls_per_step", "launches": "launches_per_step", "self_ns": "self_ns_per_step",
        "total_ns": "ns_per_step"}  # fmt: skip


def table(entries: Iterable[tuple[Mapping[str, str], pd.DataFrame, Mapping[str, Any]]]) -> pd.DataFrame:
    """A row a cell, module and direction, per step, in the order of the cells' own tables.

    entries: cell, rows of its layers.csv, sidecar of its trace.
    """
    frames = []
    for cell, rows, facts in entries:
        sums = rows[list(SUMS)].astype("float64") / profiled_steps(facts)
        frames.append(rows.assign(**cell, **sums.rename(columns=SUMS)))
    return pd.concat(frames, ignore_index=True)[LAYERS] if frames else pd.DataFrame(columns=LAYERS)


def main(paths: Sequence[str], sidecars: Sequence[str], csv: str) -> None:
    """Read the cells' tables of layers, write the one across them."""
    read = zip(cell_tables.read(paths, layers.TABLE), sidecars, strict=True)
    write_csv(table((cell, rows, read_json(sidecar, NEEDS)) for (cell, rows), sidecar in read), csv)
