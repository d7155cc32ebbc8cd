"""Makes the tables of occupancy, memory charts, pipe utilisation and warp states across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import across_cells, cell_counters

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    paths = {name: as_list(job.input.get(name, [])) for name in cell_counters.TABLES}
    across_cells.tabulate_counters(paths, dict(job.output.items()))
