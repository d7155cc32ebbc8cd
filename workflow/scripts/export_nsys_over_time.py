"""Exports what nsys collected of the GPU over time."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys import over_time_export

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    made = job.output
    over_time_export.main(given.sqlite, given.sidecar, made.metrics, made.steps, made.memory, job.say)
