"""Makes the tables across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import across_cells

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    across_cells.tabulate_cells({name: as_list(files) for name, files in given.items()}, dict(job.output.items()))
