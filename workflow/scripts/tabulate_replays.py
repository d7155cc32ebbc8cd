"""Makes the tables of replayed steps and of the CPU's time across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import across_cells

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    across_cells.tabulate_replays(as_list(given.changes), as_list(given.host), dict(job.output.items()))
