"""Makes the timeline of a cell's typical step."""

from profzoo.io.scripts import derived
from profzoo.tables import step_timeline

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    step_timeline.main(given.sqlite, given.sidecar, job.output.json)
