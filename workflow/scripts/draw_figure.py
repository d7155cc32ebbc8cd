"""Draws a figure of one table or several."""

from profzoo.figures import drawing
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    drawing.main(dict(given.items()), job.params.options, list(job.output), job.params.dpi)
