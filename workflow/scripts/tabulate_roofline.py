"""Holds the kernel tables of all cells against the GPU's peaks."""

from profzoo.io.scripts import begin_script
from profzoo.tables import across_cells

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    across_cells.tabulate_roofline(given.kernels, given.cells, given.peaks, job.output.csv)
