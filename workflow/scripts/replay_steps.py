"""Simulates changes to the traced steps of a cell."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.what_if import tables

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    ranks = next(iter(as_list(given.ranks)), None)
    tables.main(given.sqlite, given.sidecar, given.time, given.time_sidecar, dict(job.output.items()), ranks)
