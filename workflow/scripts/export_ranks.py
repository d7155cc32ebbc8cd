"""Exports what each process of a cell on several GPUs did in a step."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.tools.nsys import ranks

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    integrity.require([given.ranks, given.sidecar])
    ranks.main(given.ranks, given.sidecar, snakemake.output.csv)
