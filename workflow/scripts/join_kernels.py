"""Joins a cell's time by nsys with its counters by ncu."""

from profzoo.io.scripts import derived, listed
from profzoo.tables import kernel_table

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    sets, census = listed(given.get("sets", [])), given.get("census") or None
    kernel_table.main(given.nsys, given.sidecar, sets, census, job.output.csv)
