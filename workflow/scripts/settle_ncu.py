"""Writes down what a section set of a cell is collected by."""

from profzoo.io.scripts import begin_script, write_text

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    write_text(f"{job.params.job}\n", job.output.job)
