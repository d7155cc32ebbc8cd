"""Makes the table of trials across the zoo."""

from profzoo.files import derived, listed
from profzoo.trials import tabulate

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    expected = given.get("expected") or None
    tabulate.main(listed(given.steps), expected, job.params.margin, job.output.csv)
