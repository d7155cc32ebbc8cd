"""Makes the table of steps of an imported cell."""

from profzoo.foreign_reports import step_table
from profzoo.io.scripts import as_list, begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    step_table.main(as_list(job.input.told), job.output.steps, job.output.sidecar)
