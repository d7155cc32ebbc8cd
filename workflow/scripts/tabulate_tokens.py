"""Makes the table of the parts of tokens' time across the zoo."""

from profzoo.io.scripts import as_list, begin_script, write_csv
from profzoo.tables import across_cells, tokens

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    write_csv(across_cells.concatenate_cells(as_list(job.input.tokens), tokens.TABLE), job.output.csv)
