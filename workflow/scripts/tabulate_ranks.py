"""Puts the processes of all cells on several GPUs into one table."""

from profzoo.files import derived, listed, write_csv
from profzoo.tables import ranks

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    write_csv(ranks.tabulated(listed(given.ranks)), job.output.csv)
