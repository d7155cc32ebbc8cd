"""Makes the timeline of a cell's typical step."""

from profzoo import integrity
from profzoo.files import reported
from profzoo.tables import step_timeline

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    integrity.require([given.sqlite, given.sidecar])
    step_timeline.main(given.sqlite, given.sidecar, snakemake.output.json)
