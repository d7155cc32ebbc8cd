"""Makes the table of trials across the zoo."""

from profzoo.io.scripts import derived, listed
from profzoo.trials import trial_table

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    expected = given.get("expected") or None
    trial_table.main(listed(given.steps), expected, job.params.margin, job.output.csv)
