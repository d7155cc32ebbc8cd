"""Draws memory over the traced steps of a cell."""

from profzoo.figures import memory_over_time
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    memory_over_time.main(given.csv, given.sidecar, list(job.output), job.params.dpi)
