"""Writes down what a section set of a cell is collected by."""

from profzoo.io.scripts import derived, write_text

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    write_text(f"{job.params.job}\n", job.output.job)
