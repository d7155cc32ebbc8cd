"""Records what the expected gains of tried cells are made of, so that they can be made again without a GPU.

python -m tests.benchmarks.recorded_cells RESULTS tests/data/trials/NAME

after `snakemake trials` with nsys among its tools. The table of trials becomes NAME.csv, and NAME holds the traced steps,
the tables and the settings of its cells. `python -m tests.benchmarks.verdict_score --write` then makes the gains again.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from profzoo.io import csv_tables as reading
from profzoo.plans import plan_table
from profzoo.tables import schemas
from profzoo.tables.roofline import read_peaks
from profzoo.tables.schemas import CELL
from profzoo.trials import trial_table
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.cell_facts import read_cell_facts
from profzoo.verdicts.verdict import VERDICTS_TABLE
from profzoo.what_if.program import read_programs

TABLES = ("cells", "steps", "kernels", "roofline")
SETTINGS, PEAKS, PROGRAM = "settings.json", "peaks.csv", "{}.{}.program.npz"
EXPECTED = ["expected", "expected_low", "expected_high"]


def record(results: Path, folder: Path) -> None:
    """Copy the tables of trials and their cells, without rows of other cells, and the traced steps."""
    folder.mkdir(parents=True, exist_ok=True)
    trials = reading.read(results / "tables/trials.csv", trial_table.TRIALS_TABLE)
    trials.to_csv(folder.with_suffix(".csv"), index=False, float_format="%.6g")
    cells = [tuple(cell) for cell in trials[CELL].drop_duplicates().to_numpy()]
    for name in TABLES:
        if (path := results / f"tables/{name}.csv").is_file():
            table = schemas.read_table(name, path)
            own = pd.MultiIndex.from_frame(table[CELL]).isin(cells)
            table[own].to_csv(folder / f"{name}.csv", index=False)
    for peaks in (results / "peaks").glob("*.csv"):
        shutil.copy(peaks, folder / PEAKS)
    sidecars = [str(results / model / f"{phase}.time.csv.json") for model, phase in cells]
    ran_with = {" ".join(cell): own for cell, own in read_cell_facts(sidecars).ran_with.items()}
    (folder / SETTINGS).write_text(json.dumps(ran_with, indent=1, sort_keys=True), encoding="utf-8")
    for model, phase in cells:
        if (program := results / model / f"{phase}.program.npz").is_file():
            shutil.copy(program, folder / PROGRAM.format(model, phase))


def expect_again(trials: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Return trials with the gains that today's code expects of their settings; nan where it expects none.

    trials: the table of trials. folder: what was recorded of its cells.
    """
    tables = {name: schemas.read_table(name, path) for name in TABLES if (path := folder / f"{name}.csv").is_file()}
    ran_with = {
        tuple(cell.split()): own for cell, own in json.loads((folder / SETTINGS).read_text(encoding="utf-8")).items()
    }
    programs = {cell: read_programs(path) for cell in ran_with if (path := folder / PROGRAM.format(*cell)).is_file()}
    peaks = read_peaks(folder / PEAKS) if (folder / PEAKS).is_file() else {}
    given = {**tables, "verdicts": VERDICTS_TABLE.empty()}
    plans = plan_table.tabulate_plans(given, peaks, ran_with, verdict_rules.load_rules(), programs)
    gains = {
        (row["model"], row["phase"], frozenset(row["settings"].split())): [
            row["gain"],
            row["gain_low"],
            row["gain_high"],
        ]
        for row in plans.to_dict("records")
    }
    keys = [(row.model, row.phase, frozenset(str(row.words).split())) for row in trials.itertuples()]
    again = trials.assign(**{name: [gains.get(key, [float("nan")] * 3)[place] for key in keys]
                             for place, name in enumerate(EXPECTED)})  # fmt: skip
    return again.assign(outcome=[trial_table.judge_outcome(row) for row in again.to_dict("records")])


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the cells of a folder of results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.recorded_cells")
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument("folder", type=Path, metavar="NAME")
    options = parser.parse_args(arguments)
    record(options.results, options.folder)
    size = sum(path.stat().st_size for path in options.folder.iterdir())
    print(f"recorded {options.folder.name}: {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
