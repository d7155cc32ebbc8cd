"""Makes the table of trials across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.trials import trial_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    expected = given.get("expected") or None
    trial_table.main(as_list(given.steps), expected, job.params.margin, job.output.csv)
