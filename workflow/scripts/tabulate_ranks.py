"""Puts the processes of all cells on several GPUs into one table."""

from profzoo.files import listed, reported, write_csv
from profzoo.tables import ranks

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    write_csv(ranks.tabulated(listed(given.ranks)), snakemake.output.csv)
