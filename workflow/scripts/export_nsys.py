"""Exports an nsys trace."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys import tables

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    made = job.output
    tables.export_trace(given.sqlite, given.sidecar, made.csv, made.steps, made.sidecar, job.say)
