"""Puts differences between sides down to parts of the step, layers and kernels."""

from profzoo.compare import tabulate_parts
from profzoo.files import listed, reported

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]):
    given, places = snakemake.input, dict(enumerate(snakemake.params.sides))
    files = {
        what: {name: listed(given.get(f"{what}_{place}", [])) for place, name in places.items()}
        for what in tabulate_parts.FILES_OF
    }
    tabulate_parts.main(given.compared, files, snakemake.output.csv)
