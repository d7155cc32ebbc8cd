"""Prints docs/measured's tables of variants from a results folder: how many times as fast, launches, joules a sample.

python -m tests.benchmarks.variant_rows RESULTS [PHASE]

After `snakemake compare --config tool=sample,nsys candidate=...`; launches and joules where those tools ran.
"""

import json
import sys
from pathlib import Path

import pandas as pd

from profzoo.tables.steps_per_export import count_profiled_steps
from profzoo.tools.nsys import tables

BASE = "as it is"


def times(row: pd.Series) -> str:
    """How many times as fast a candidate is, with its interval; in italics where that is undecided."""
    said = f"{1 / row['ratio']:.2f} ({1 / row['ratio_high']:.2f}–{1 / row['ratio_low']:.2f})"
    return f"*{said}*" if row["verdict"] == "undecided" else said


def launches(csv: Path) -> str:
    """Kernels a step, by nsys."""
    if not csv.exists():
        return ""
    steps = count_profiled_steps(json.loads(Path(f"{csv}.json").read_text()))
    return f"{tables.launches_in_steps(pd.read_csv(csv))['launches'].sum() / steps:,.0f}"


def table(rows: dict[str, dict[str, str]], what: str) -> None:
    """Print rows by model, of columns by candidate."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    print(f"\n| {what} | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(row.get(column, '') for column in columns)} |")


def main(results: str, phase: str = "train") -> None:
    folder = Path(results)
    compared = pd.read_csv(folder / "tables/compare.csv").query("phase == @phase")
    fast, many, joules = (dict[str, dict[str, str]]() for _ in range(3))
    for model, rows in compared.groupby("model"):
        first = rows.iloc[0]
        fast[str(model)] = {f"{BASE}, ms": f"{first['baseline_ns'] / 1e6:.1f}"}
        many[str(model)] = {BASE: launches(folder / f"{model}/{phase}.nsys.csv")}
        joules[str(model)] = {BASE: f"{first['baseline_item_j']:#.3g}"}
        for _, row in rows.iterrows():
            fast[str(model)][row["candidate"]] = times(row)
            many[str(model)][row["candidate"]] = launches(folder / f"{model}@{row['candidate']}/{phase}.nsys.csv")
            joules[str(model)][row["candidate"]] = f"{row['candidate_item_j']:#.3g}"
    table(fast, "times as fast")
    table(many, "launches a step")
    table(joules, "J a sample")


if __name__ == "__main__":
    main(*sys.argv[1:])
