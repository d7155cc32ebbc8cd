"""Compares sides of every cell."""

from profzoo.compare import comparison_table
from profzoo.io.scripts import as_list, begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, names = job.input, job.params.sides
    alone, sampled, numbers = (
        {name: as_list(given.get(f"{what}_{place}", [])) for place, name in enumerate(names)}
        for what in ("side", "sampled", "numbers")
    )
    turns = as_list(given.get("turns", []))
    comparison_table.main(names, turns, alone, sampled, job.params.margin, job.output.csv, numbers)
