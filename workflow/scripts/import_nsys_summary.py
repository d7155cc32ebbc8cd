"""Imports a summary of kernels that `nsys stats` printed."""

from profzoo.foreign_reports import nsys_stats
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    made = dict(job.output.items())
    nsys_stats.import_stats(job.params.files[0], job.wildcards.model, made, job.say)
