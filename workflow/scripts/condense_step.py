"""Extracts the timeline of a cell's typical step, and the table of its tracks."""

from profzoo.io.scripts import begin_script
from profzoo.tables import step_timeline

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    step_timeline.main(job.input.sqlite, job.input.sidecar, job.output.json, job.output.tracks)
