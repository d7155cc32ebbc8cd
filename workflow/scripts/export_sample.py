"""Exports the samples of a cell's window."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.tools.sample import export

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]) as say:
    given, made = snakemake.input, snakemake.output
    integrity.require([given.samples, given.sidecar])
    export.main(given.samples, given.sidecar, made.csv, made.sidecar, say)
