"""Draws a figure of one table or several."""

from profzoo.figures import drawing
from profzoo.files import reported

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    drawing.main(snakemake.wildcards.figure, dict(given.items()), snakemake.params.options, list(snakemake.output))
