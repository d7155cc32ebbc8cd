"""Makes the tables of replayed steps and of the CPU's time across the zoo."""

from profzoo.files import listed, reported
from profzoo.tables import replays_across

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    replays_across.main(listed(given.changes), listed(given.host), dict(snakemake.output.items()))
