"""Exports torch.profiler's operators and launches."""

from profzoo.io.scripts import derived
from profzoo.tools.torch import export

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    export.main(given.operators, given.trace, given.sidecar, dict(job.output.items()), job.say)
