"""Exports a section set of an ncu report, or of one of each process."""

from profzoo.io.scripts import derived
from profzoo.tools.ncu import export

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given, made, asked = job.input, job.output, job.params
    what = (given.pages, given.sidecar, given.get("census") or None, asked.launches, asked.metrics, asked.each)
    export.main(*what, made.csv, made.sidecar, job.say)
