"""Exports a section set of an ncu report, or of one of each process."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.tools.ncu import export

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]) as say:
    given, made, asked = snakemake.input, snakemake.output, snakemake.params
    integrity.require([given.sidecar])
    what = (given.pages, given.sidecar, given.get("census") or None, asked.launches, asked.metrics, asked.each)
    export.main(*what, made.csv, made.sidecar, say)
