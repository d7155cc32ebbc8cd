"""Makes the table of trials across the zoo."""

from profzoo.files import listed, reported
from profzoo.trials import tabulate

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    expected = given.get("expected") or None
    tabulate.main(listed(given.steps), expected, snakemake.params.margin, snakemake.output.csv)
