"""Exports the reports of `nsys stats`."""

from profzoo.io.scripts import derived
from profzoo.tools.nsys import stats

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    stats.main(given.sqlite, dict(zip(job.params.reports, job.output, strict=True)))
