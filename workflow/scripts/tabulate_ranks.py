"""Puts the processes of all cells on several GPUs into one table."""

import pandas as pd

from workflow.scripts.lib import ranks
from workflow.scripts.lib.files import reported, write_csv

if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        cells = ({"model": model, "phase": "train"} for model in snakemake.params.models)
        tables = zip(cells, map(pd.read_csv, snakemake.input.ranks), strict=True)
        write_csv(ranks.across_cells(tables), snakemake.output.csv)
