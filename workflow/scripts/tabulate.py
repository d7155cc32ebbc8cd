"""Makes the tables across the zoo."""

from profzoo.files import listed, reported
from profzoo.tables import tabulate

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    tabulate.main({name: listed(files) for name, files in given.items()}, dict(snakemake.output.items()))
