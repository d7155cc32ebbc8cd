"""Exports the samples of a cell's window."""

from profzoo.io.scripts import derived
from profzoo.tools.sample import export

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given, made = job.input, job.output
    export.main(given.samples, given.sidecar, made.csv, made.sidecar, job.say)
