"""Divides the time of a cell's tokens into what their bytes need and what comes beside it."""

from profzoo.io.scripts import begin_script
from profzoo.tables import tokens

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    tokens.main(given.launches, (given.time, given.time_sidecar), given.get("peaks") or "", job.output.csv)
