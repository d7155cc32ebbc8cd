"""Puts the processes of all cells on several GPUs into one table."""

from profzoo.io.scripts import derived, listed, write_csv
from profzoo.tables import rank_imbalance

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    write_csv(rank_imbalance.tabulated(listed(given.ranks)), job.output.csv)
