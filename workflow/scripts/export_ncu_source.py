"""Exports what ncu counted by source line and machine instruction."""

from profzoo.io.scripts import begin_script
from profzoo.tools.ncu import source_lines

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    source_lines.export_source(given.report, given.launches, job.params.kernels, job.output.csv, job.say)
