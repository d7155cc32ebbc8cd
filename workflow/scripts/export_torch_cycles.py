"""Exports all cycles of torch.profiler and how they differ."""

from profzoo.io.scripts import begin_script
from profzoo.tools.torch import cycles

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    files = given.operators, given.trace, given.sidecar, given.more
    cycles.main(*files, dict(job.output.items()), job.say)
