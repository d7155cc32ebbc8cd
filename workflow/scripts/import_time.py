"""Makes the table of steps of an imported cell."""

from profzoo.foreign_reports import steps
from profzoo.io.scripts import as_list, begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    steps.write_step_table(as_list(job.input.told), job.output.steps, job.output.sidecar)
