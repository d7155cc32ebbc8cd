"""Exports the launches of an nsys trace's step, in order."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys.steps import step_sequence

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    made, asked = job.output, job.params
    step_sequence.main(given.sqlite, given.sidecar, asked.steps, made.csv, made.sidecar, asked.otherwise, job.say)
