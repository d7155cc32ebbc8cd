"""Exports the samples of a cell's window."""

from profzoo.io.scripts import begin_script
from profzoo.tools.sample import tables

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, made = job.input, job.output
    tables.main(given.samples, given.sidecar, made.csv, made.sidecar, job.say)
