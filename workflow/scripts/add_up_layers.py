"""Makes a cell's tables of layers and of operators."""

from profzoo.files import reported
from profzoo.tables import layers

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    layers.main(snakemake.input.launches, snakemake.input.modules, dict(snakemake.output.items()))
