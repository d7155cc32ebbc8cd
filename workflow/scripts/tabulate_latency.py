"""Makes the table of percentiles of step times across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import latency_across

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    latency_across.main(as_list(job.input.time), as_list(job.input.sidecars), job.output.csv)
