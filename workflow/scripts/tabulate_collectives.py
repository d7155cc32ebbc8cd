"""Puts the collective operations and the skew of all cells on several GPUs into tables."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import across_cells

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    paths = {name: as_list(job.input.get(name, [])) for name in across_cells.TABLES}
    across_cells.tabulate_collectives(paths, dict(job.output.items()))
