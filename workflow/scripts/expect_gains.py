"""Says what the advice of verdicts is expected to gain."""

from profzoo.io.scripts import derived
from profzoo.trials import expected_gains

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.params
    expected_gains.main(job.input.verdicts, given.config, given.batches, job.output.json)
