"""Asks whether counters of one cell's launches may stand for another's: what that would save, and how wrong totals were.

python -m tests.benchmarks.shared_launches [RESULTS [SET]]

After `snakemake all --config tool=nsys,ncu` with a set that was sampled (survey). A launch stands for one of another cell
where kernel, grid, block and shared memory are the same, and times within NEAR. Of totals that are estimates already it
prints by how much they would be others.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.tables.cell_tables import cell_of
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

NEAR = 1.1
METRICS = {
    "DRAM read": "dram__bytes_read.sum",
    "DRAM write": "dram__bytes_write.sum",
    "L2": "lts__t_bytes.sum",
    "fp32 fma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
}


def tables(results: Path, pattern: str) -> pd.DataFrame:
    """The rows of a table of every cell, with `cell`."""
    paths = sorted(results.glob(f"*/*.{pattern}"))
    return pd.concat([pd.read_csv(path).assign(cell=" ".join(cell_of(path).values())) for path in paths])


def saved(launches: pd.DataFrame) -> str:
    """Of how many launch configurations an earlier cell has one that could stand for it; launches: as nsys traced them."""
    configurations = launches.groupby([*KEYS, "cell"])["ns"].agg(["median", "sum"]).reset_index()
    count, ns, known = 0, 0.0, dict[tuple, list[float]]()
    for _, rows in configurations.groupby("cell"):
        keys = list(rows[KEYS].itertuples(index=False, name=None))
        for key, median, total in zip(keys, rows["median"], rows["sum"], strict=True):
            if any(1 / NEAR <= median / other <= NEAR for other in known.get(key, [])):
                count, ns = count + 1, ns + total
        for key, median in zip(keys, rows["median"], strict=True):
            known.setdefault(key, []).append(median)
    share = ns / configurations["sum"].sum()
    return f"{count} of {len(configurations)} configurations have one in an earlier cell, {share:.0%} of GPU time"


def off(mine: pd.DataFrame, others: pd.DataFrame) -> tuple[float, Mapping[str, float]]:
    """The share of a cell's time that launches of others could stand for, and how far its totals were off then."""
    at = others.groupby(KEYS).indices
    covered, counted, borrowed = 0.0, dict.fromkeys(METRICS, 0.0), dict.fromkeys(METRICS, 0.0)
    for key, (_, row) in zip(mine[KEYS].itertuples(index=False, name=None), mine.iterrows(), strict=True):
        alike = others.iloc[at.get(key, np.array([], dtype=int))]
        apart = np.abs(np.log(alike[GPU_TIME] / row[GPU_TIME])).to_numpy()
        near = len(apart) and apart.min() <= np.log(NEAR)
        source = alike.iloc[int(apart.argmin())] if near else row
        covered += row["multiplicity"] * row[GPU_TIME] if near else 0.0
        for name, metric in METRICS.items():
            counted[name] += row["multiplicity"] * row[metric]
            borrowed[name] += row["multiplicity"] * source[metric]
    errors = {name: borrowed[name] / counted[name] - 1 if counted[name] else np.nan for name in METRICS}
    return covered / (mine["multiplicity"] * mine[GPU_TIME]).sum(), errors


def main(results: Path, name: str) -> None:
    """Print what would be saved, and a row a cell."""
    print(saved(tables(results, "nsys-launches.csv")))
    counted = tables(results, f"ncu.{name}.csv")
    print(f"| cell | of its time | {' | '.join(METRICS)} |\n|---|---|{'---|' * len(METRICS)}")
    for cell, mine in counted.groupby("cell"):
        share, errors = off(mine, counted[counted["cell"] != cell].reset_index(drop=True))
        print(f"| {cell} | {share:.0%} | {' | '.join(f'{error:+.1%}' for error in errors.values())} |")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ["results"]), *sys.argv[2:3] or ["survey"])
