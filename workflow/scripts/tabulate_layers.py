"""Makes the tables of layers and of owners across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import across_cells

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    across_cells.tabulate_layers(as_list(given.layers), as_list(given.coverage), dict(job.output.items()))
