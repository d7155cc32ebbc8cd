"""Exports what each stream of a GPU did, from a trace of torch.profiler."""

from profzoo.io.scripts import begin_script
from profzoo.tools.torch import streams

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    streams.main(job.input.trace, job.output.csv, job.say)
