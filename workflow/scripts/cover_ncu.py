"""Compares the launch configurations that ncu profiled with those that nsys traced of the same cell."""

import pandas as pd

from workflow.scripts.lib import coverage
from workflow.scripts.lib.files import reported, write_csv

if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        census = pd.read_csv(snakemake.input.census) if snakemake.input.get("census") else None
        compared = coverage.compare(pd.read_csv(snakemake.input.nsys), pd.read_csv(snakemake.input.ncu), census)
        write_csv(compared, snakemake.output.csv)
