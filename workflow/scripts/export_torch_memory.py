"""Exports memory over the steps of a trace of torch.profiler."""

from profzoo.io.scripts import begin_script
from profzoo.tools.torch import memory_over_time

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    memory_over_time.main(given.trace, given.sidecar, job.output.csv, job.say)
