"""Writes the data dictionary: what every column of every table means."""

from profzoo import data_dictionary
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    data_dictionary.main(job.output.csv)
