"""Exports what each process of a cell on several GPUs did in a step."""

from profzoo.io.scripts import begin_script
from profzoo.tools.nsys.steps import ranks

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    ranks.main(given.ranks, given.sidecar, job.output.csv)
