"""Exports an nsys trace."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys import export

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    made = job.output
    export.main(given.sqlite, given.sidecar, made.csv, made.steps, made.sidecar, job.say)
