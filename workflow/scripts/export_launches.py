"""Exports the launches of an nsys trace's step, in order."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.tools.nsys import sequence

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]) as say:
    given = snakemake.input
    integrity.require([given.sidecar])
    made, asked = snakemake.output, snakemake.params
    sequence.main(given.sqlite, given.sidecar, asked.steps, made.csv, made.sidecar, asked.otherwise, say)
