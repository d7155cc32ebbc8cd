"""Says what the plans of each cell are expected to gain."""

from profzoo.io.scripts import begin_script
from profzoo.trials import trial_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.params
    trial_table.write_expected_gains(job.input.plans, given.config, given.batches, given.failed, job.output.json)
