"""Makes the tables of layers and of owners across the zoo."""

from profzoo.io.scripts import derived, listed
from profzoo.tables import layers_across

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    layers_across.main(listed(given.layers), listed(given.coverage), dict(job.output.items()))
