"""Holds the kernel tables of all cells against the GPU's peaks."""

from profzoo.files import reported
from profzoo.tables import tabulate_roofline

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given = snakemake.input
    tabulate_roofline.main(given.kernels, given.cells, given.peaks, snakemake.output.csv)
