"""Makes the tables of replayed steps and of the CPU's time across the zoo."""

from profzoo.io.scripts import derived, listed
from profzoo.tables import replays_across

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    replays_across.main(listed(given.changes), listed(given.host), dict(job.output.items()))
