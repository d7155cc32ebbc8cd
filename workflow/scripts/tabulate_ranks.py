"""Puts the processes of all cells on several GPUs into one table."""

from workflow.scripts.lib import ranks
from workflow.scripts.lib.files import reported, write_csv
from workflow.scripts.tabulate import read_cells

if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        write_csv(ranks.across_cells(read_cells(snakemake.input.ranks)), snakemake.output.csv)
