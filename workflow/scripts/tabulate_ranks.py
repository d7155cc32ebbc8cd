"""Puts the processes of all cells on several GPUs into one table."""

from profzoo.io.scripts import as_list, begin_script, write_csv
from profzoo.tables import across_cells

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    write_csv(across_cells.tabulate_ranks(as_list(given.ranks)), job.output.csv)
