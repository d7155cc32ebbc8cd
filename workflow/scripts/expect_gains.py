"""Says what the plans of each cell are expected to gain."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.trials import trial_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, read = job.params, job.input
    timed = as_list(read.get("timed", []))
    asked = (given.config, given.batches, given.failed)
    trial_table.write_expected_gains(read.plans, timed, *asked, job.output.json)
