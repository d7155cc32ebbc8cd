"""Exports metrics of ncu with several values per launch."""

from profzoo.io.scripts import begin_script
from profzoo.tools.ncu import instances_export

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    instances_export.main(given.report, given.launches, job.params.kernels, job.output.csv)
