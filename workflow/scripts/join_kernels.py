"""Joins a cell's time by nsys with its counters by ncu into one kernel table."""

from collections.abc import Sequence

import pandas as pd

from workflow.scripts.lib import cell_tables, kernel_classes, kernel_table
from workflow.scripts.lib.files import read_json, reported, write_csv


def main(nsys: str, sidecar: str, sets: Sequence[str], csv: str) -> None:
    """Read a cell's exported CSV and write its table; sets: of ncu, the one that counts first."""
    traced, counted = pd.read_csv(nsys), [pd.read_csv(path) for path in sets]
    names = pd.concat([table["kernel"] for table in (traced, *counted)]).dropna().unique()
    classes = kernel_classes.classify_all(names)
    write_csv(kernel_table.join(traced, cell_tables.profiled_steps(read_json(sidecar)), counted, classes), csv)


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        sets = snakemake.input.get("sets", [])
        main(
            snakemake.input.nsys,
            snakemake.input.sidecar,
            [sets] if isinstance(sets, str) else sets,
            snakemake.output.csv,
        )
