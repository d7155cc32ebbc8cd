"""Exports what ncu counted by source line and machine instruction."""

from profzoo.io.scripts import begin_script
from profzoo.tools.ncu import source_export

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    source_export.main(given.report, given.launches, job.params.kernels, job.output.csv, job.say)
