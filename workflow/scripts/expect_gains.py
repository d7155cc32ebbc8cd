"""Says what the plans of each cell are expected to gain."""

from profzoo.io.scripts import begin_script
from profzoo.trials import expected_gains

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.params
    expected_gains.main(job.input.plans, given.config, given.batches, job.output.json)
