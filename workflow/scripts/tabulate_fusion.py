"""Makes the table of what could be fused across the zoo."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.verdicts.causes import verdict_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    verdict_table.write_fusion_table(as_list(given.chains), as_list(given.sidecars), job.output.csv)
