"""Writes all tables in another format than CSV, into a folder; with those in JSON also all claims."""

from profzoo.catalog import convert_tables
from profzoo.io.scripts import begin_script
from profzoo.referee import questions

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    convert_tables.main(job.params.results, job.output.folder, job.wildcards.format, job.input.tables, job.say)
    questions.write_claims(job.params.results, job.output.folder, job.wildcards.format)
