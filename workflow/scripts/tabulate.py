"""Makes the tables across the zoo."""

from profzoo.io.scripts import derived, listed
from profzoo.tables import tabulate

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    tabulate.main({name: listed(files) for name, files in given.items()}, dict(job.output.items()))
