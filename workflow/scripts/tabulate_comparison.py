"""Compares sides of every cell."""

from profzoo.compare import tabulate
from profzoo.files import listed, reported

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given, names = snakemake.input, snakemake.params.sides
    alone = {name: listed(given.get(f"side_{place}", [])) for place, name in enumerate(names)}
    tabulate.main(names, listed(given.get("turns", [])), alone, snakemake.params.margin, snakemake.output.csv)
