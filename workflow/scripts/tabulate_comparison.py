"""Compares sides of every cell."""

from profzoo.compare import comparison_table
from profzoo.io.scripts import derived, listed

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given, names = job.input, job.params.sides
    alone, sampled = (
        {name: listed(given.get(f"{what}_{place}", [])) for place, name in enumerate(names)}
        for what in ("side", "sampled")
    )
    comparison_table.main(names, listed(given.get("turns", [])), alone, sampled, job.params.margin, job.output.csv)
