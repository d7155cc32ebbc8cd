"""Prints docs/measured's row of each cell from results/, after `snakemake all --config tool=nsys` or with ncu too.

python -m tests.benchmarks.zoo_rows [RESULTS]
"""

import sys
from pathlib import Path

import pandas as pd

from profzoo.io.scripts import read_json
from profzoo.tables.kernel_table import KEYS
from profzoo.tools.nsys.steps.steps import CAUSES

HEADER = (
    "cell", "parameters", "batch", "step ms", "launches", "kernels", "configurations", "GPU busy", "idle, %: input / "
    "sync / latency / launch / host", "peak memory GB", "time s", "nsys s", "ncu s",
)  # fmt: skip


def wall(path: Path) -> str:
    """Wall seconds of a job, by its sidecar."""
    return f"{read_json(path)['wall_s']:.1f}" if path.exists() else ""


def traced(path: Path, steps: pd.DataFrame) -> tuple[str, ...]:
    """What nsys saw of a cell: launches, kernels, configurations, busy share, idle by cause; empty where it did not."""
    if not path.exists() or steps.empty:
        return ("",) * 5
    seen, where = pd.read_csv(path), steps.iloc[0]
    idle = (f"{where[f'idle_{cause}_ns'] / max(where['idle_ns'], 1) * 100:.0f}" for cause in CAUSES)
    return (
        f"{where['launches']:,.0f}",
        str(seen["mangled"].nunique()),
        str(len(seen[KEYS].drop_duplicates())),
        f"{where['busy_share']:.0%}",
        " / ".join(idle),
    )


def row(cell: pd.Series, steps: pd.DataFrame, results: Path) -> tuple[str, ...]:
    folder, phase = results / cell["model"], cell["phase"]
    memory = cell["peak_memory_bytes"]
    return (
        f"{cell['model']} {phase}",
        f"{cell['parameters']:,}",
        str(cell["batch"]),
        f"{cell['step_ns'] / 1e6:.2f}",
        *traced(folder / f"{phase}.nsys.csv", steps[(steps["model"] == cell["model"]) & (steps["phase"] == phase)]),
        f"{memory / 1e9:.2f}" if pd.notna(memory) else "",
        wall(folder / f"{phase}.time.csv.json"),
        wall(folder / f"{phase}.nsys-rep.json"),
        wall(folder / f"{phase}.launch.ncu-rep.json"),
    )


def main(results: str = "results") -> None:
    root = Path(results)
    cells, steps = (pd.read_csv(root / "tables" / f"{name}.csv") for name in ("cells", "steps"))
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for _, cell in cells.iterrows():
        print(f"| {' | '.join(row(cell, steps, root))} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
