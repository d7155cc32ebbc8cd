"""Exports a section set of an ncu report, or of one of each process."""

from profzoo.io.scripts import begin_script
from profzoo.tools.ncu import export

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, made, asked = job.input, job.output, job.params
    what = (given.pages, given.sidecar, given.get("census") or None, asked.launches, asked.metrics, asked.each)
    export.main(*what, made.csv, made.sidecar, job.say)
