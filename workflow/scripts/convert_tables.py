"""Writes all tables in another format than CSV, into a folder."""

from profzoo.catalog import convert_tables
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    convert_tables.main(job.params.results, job.output.folder, job.wildcards.format, job.input.tables, job.say)
