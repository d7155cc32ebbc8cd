"""Compares sides of every cell."""

from profzoo.compare import tabulate
from profzoo.files import listed, reported

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given, names = snakemake.input, snakemake.params.sides
    alone, sampled = (
        {name: listed(given.get(f"{what}_{place}", [])) for place, name in enumerate(names)}
        for what in ("side", "sampled")
    )
    tabulate.main(names, listed(given.get("turns", [])), alone, sampled, snakemake.params.margin, snakemake.output.csv)
