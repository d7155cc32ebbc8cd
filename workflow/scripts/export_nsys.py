"""Exports an nsys trace."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.tools.nsys import export

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]) as say:
    given = snakemake.input
    made = snakemake.output
    integrity.require([given.sqlite, given.sidecar])
    export.main(given.sqlite, given.sidecar, made.csv, made.steps, made.sidecar, say)
