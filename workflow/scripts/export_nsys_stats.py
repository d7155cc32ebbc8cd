"""Exports the reports of `nsys stats`."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.tools.nsys import stats

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    integrity.require([given.sqlite])
    stats.main(given.sqlite, dict(zip(snakemake.params.reports, snakemake.output, strict=True)))
