"""Makes the table of what could be fused across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.verdicts import fusion_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    fusion_table.main(as_list(given.chains), as_list(given.sidecars), job.output.csv)
