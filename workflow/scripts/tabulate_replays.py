"""Makes the tables of replayed steps and of the CPU's time across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import replays_across

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    replays_across.main(as_list(given.changes), as_list(given.host), dict(job.output.items()))
