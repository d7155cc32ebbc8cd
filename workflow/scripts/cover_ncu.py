"""Holds what ncu profiled against what nsys traced of the same cell."""

from profzoo.io.scripts import begin_script
from profzoo.tables import kernel_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    kernel_table.write_coverage(given.nsys, given.ncu, given.get("census") or None, job.output.csv)
