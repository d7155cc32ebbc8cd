"""Exports metrics of ncu with several values per launch."""

from profzoo.io.scripts import begin_script
from profzoo.tools.ncu import instances

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    instances.export_instances(given.report, given.launches, job.params.kernels, job.output.csv)
