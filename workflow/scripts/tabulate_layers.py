"""Makes the tables of layers and of owners across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import layers_across

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    layers_across.main(as_list(given.layers), as_list(given.coverage), dict(job.output.items()))
