"""Runs the steps of a cell's trace again, changed."""

from profzoo.io.scripts import derived
from profzoo.what_if import tables

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    tables.main(given.sqlite, given.sidecar, given.time, given.time_sidecar, dict(job.output.items()))
