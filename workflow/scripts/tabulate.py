"""Makes the tables across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import tabulate

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    tabulate.main({name: as_list(files) for name, files in given.items()}, dict(job.output.items()))
