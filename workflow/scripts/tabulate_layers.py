"""Makes the tables of layers and of owners across the zoo."""

from profzoo.files import listed, reported
from profzoo.tables import layers_across

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    layers_across.main(listed(given.layers), listed(given.coverage), dict(snakemake.output.items()))
