"""Joins a cell's time by nsys with its counters by ncu."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import kernel_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    sets, census = as_list(given.get("sets", [])), given.get("census") or None
    owned = as_list(given.get("owned", []))
    kernel_table.main(given.nsys, given.sidecar, sets, census, job.output.csv, owned)
