"""Makes the timeline of a cell's typical step, and the table of its tracks."""

from profzoo.io.scripts import begin_script
from profzoo.tables import step_timeline

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    step_timeline.main(given.sqlite, given.sidecar, job.output.json, job.output.tracks)
