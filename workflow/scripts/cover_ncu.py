"""Holds what ncu profiled against what nsys traced of the same cell."""

from profzoo.files import derived
from profzoo.tables import coverage

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given = job.input
    coverage.main(given.nsys, given.ncu, given.get("census") or None, job.output.csv)
