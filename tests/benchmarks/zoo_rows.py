"""Prints docs/measured/zoo.md's table, and the numbers that its sentences name, from the tables of a run of the zoo.

python -m tests.benchmarks.zoo_rows [RESULTS]      after `snakemake report --config models=all tool=nsys`, or with ncu too
"""

import sys
from pathlib import Path

import pandas as pd

from profzoo.tables.kernel_table import KEYS
from profzoo.tools.nsys.steps.steps import CAUSES

PHASES = ("train", "inference")
HEADER = ("model", "parameters, million", "step ms", "GPU ms", "launches", "configurations", "peak memory GB")


def describe(results: Path) -> pd.DataFrame:
    """One row per cell: median step, time on the GPU, launches, configurations, peak memory, and idle time by cause."""
    cells, steps, kernels = (pd.read_csv(results / "tables" / f"{name}.csv") for name in ("cells", "steps", "kernels"))
    found = cells[["model", "phase", "parameters", "step_median_ns", "peak_memory_bytes"]].merge(
        steps.drop(columns="step_median_ns").drop_duplicates(["model", "phase"]), how="left", on=["model", "phase"]
    )
    kinds = kernels.drop_duplicates(["model", "phase", *KEYS]).groupby(["model", "phase"]).size()
    return found.join(kinds.rename("configurations"), on=["model", "phase"]).set_index(["model", "phase"])


def print_rows(cells: pd.DataFrame) -> None:
    """Print the table: one row per model, with training and inference in each field."""
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for model in cells.index.unique("model"):
        both = cells.loc[model].reindex([phase for phase in PHASES if (model, phase) in cells.index])
        fields = (
            ("{:.2f}", both["step_median_ns"] / 1e6),
            ("{:.2f}", both["busy_ns"] / 1e6),
            ("{:,.0f}", both["launches"]),
            ("{:.0f}", both["configurations"]),
            ("{:.2f}", both["peak_memory_bytes"] / 1e9),
        )
        written = (", ".join(form.format(one) for one in values) for form, values in fields)
        print(f"| {model} | {both['parameters'].iloc[0] / 1e6:.1f} | {' | '.join(written)} |")


def print_shares(cells: pd.DataFrame, kernels: pd.DataFrame, verdicts: pd.DataFrame) -> None:
    """Print what the sentences say: shares of classes, cells by busy share and by cause of idle time, first verdicts."""
    times = kernels.groupby(["model", "phase", "class"])["total_ns"].sum().unstack(fill_value=0)
    shares = times.div(times.sum(axis=1), axis=0)
    print("\nshare of GPU time by class, mean over cells:", shares.groupby("phase").mean().round(3).T, sep="\n")
    print("largest:", shares.stack().sort_values(ascending=False).groupby("class").head(3).round(2), sep="\n")
    busy = cells["busy_share"].dropna()
    print(f"\nbusy: {(busy >= 0.9).sum()} of {len(busy)} cells at least 90 %, {(busy < 0.5).sum()} less than half")
    for cause in CAUSES:
        part = (cells[f"idle_{cause}_ns"] / cells["wall_ns"]).dropna()
        print(f"{cause}: over a tenth in {(part > 0.1).sum()}, over half in {(part > 0.5).sum()} cells;", end=" ")
        print(", ".join(f"{' '.join(name)} {value:.0%}" for name, value in part.nlargest(3).items()))
    first = verdicts[verdicts["level"] == "cell"].drop_duplicates(["model", "phase"])
    print("\nfirst verdicts:", first["verdict"].value_counts().to_string(), sep="\n")


def main(results: str = "results") -> None:
    root = Path(results)
    cells = describe(root)
    print_rows(cells)
    print_shares(cells, *(pd.read_csv(root / "tables" / f"{name}.csv") for name in ("kernels", "verdicts")))


if __name__ == "__main__":
    main(*sys.argv[1:])
