"""Exports the reports of `nsys stats`."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys import command

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    command.main(given.sqlite, dict(zip(job.params.reports, job.output, strict=True)))
