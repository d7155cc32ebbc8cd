"""Joins a cell's time by nsys with its counters by ncu."""

from profzoo.files import listed, reported
from profzoo.tables import kernel_table

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    sets, census = listed(given.get("sets", [])), given.get("census") or None
    kernel_table.main(given.nsys, given.sidecar, sets, census, snakemake.output.csv)
