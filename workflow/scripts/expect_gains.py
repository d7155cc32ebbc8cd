"""Says what the advice of verdicts is expected to gain."""

from profzoo.files import reported
from profzoo.trials import expecting

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.params
    expecting.main(snakemake.input.verdicts, given.config, given.batches, snakemake.output.json)
