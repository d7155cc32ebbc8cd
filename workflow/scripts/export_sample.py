"""Exports the samples of a cell's window."""

from profzoo.io.scripts import begin_script
from profzoo.tools.sample import export

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, made = job.input, job.output
    export.main(given.samples, given.sidecar, made.csv, made.sidecar, job.say)
