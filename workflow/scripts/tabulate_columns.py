"""Writes the data dictionary: what every column of every table means."""

from profzoo.catalog import csv_files
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    csv_files.main(job.output.csv)
