"""Exports torch.profiler's operators and launches."""

from profzoo.io.scripts import begin_script
from profzoo.tools.torch import export

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    export.main(given.operators, given.trace, given.sidecar, dict(job.output.items()), job.say)
