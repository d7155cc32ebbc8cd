"""Makes the table of percentiles of step times across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import across_cells

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    across_cells.tabulate_latency(as_list(job.input.time), as_list(job.input.sidecars), job.output.csv)
