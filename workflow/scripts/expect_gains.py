"""Says what the advice of verdicts is expected to gain."""

from profzoo.files import derived
from profzoo.trials import expecting

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.params
    expecting.main(job.input.verdicts, given.config, given.batches, job.output.json)
