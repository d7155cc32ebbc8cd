"""Compares the launch configurations that ncu profiled with those that nsys traced of the same cell."""

import pandas as pd

from workflow.scripts.lib import coverage
from workflow.scripts.lib.files import DataError, reported, write_csv


def main(nsys: str, ncu: str, census: str | None, csv: str) -> None:
    """Read a cell's exported CSV and write the comparison; DataError where ncu's is of ranges."""
    profiled = pd.read_csv(ncu)
    if "mangled" not in profiled:
        raise DataError(f"{ncu} measures ranges, which hold no launches to compare: take a section set of launches")
    write_csv(coverage.compare(pd.read_csv(nsys), profiled, pd.read_csv(census) if census else None), csv)


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        given = snakemake.input
        main(given.nsys, given.ncu, given.get("census") or None, snakemake.output.csv)
