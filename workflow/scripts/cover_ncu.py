"""Holds what ncu profiled against what nsys traced of the same cell."""

from profzoo.files import reported
from profzoo.tables import coverage

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    coverage.main(given.nsys, given.ncu, given.get("census") or None, snakemake.output.csv)
