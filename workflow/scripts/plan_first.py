"""Ranks the settings that are possible for a cell by its trace, before counters have come."""

from profzoo.io.scripts import begin_script
from profzoo.plans import first_plan

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    first_plan.main(given.sqlite, given.sidecar, given.time, given.time_sidecar, job.output.csv, job.params.failed)
