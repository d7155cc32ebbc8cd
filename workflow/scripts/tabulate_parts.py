"""Puts differences between sides down to parts of the step, layers and kernels."""

from profzoo.compare import tabulate_parts
from profzoo.files import derived, listed

snakemake = globals()["snakemake"]
with derived(snakemake) as job:
    given, places = job.input, dict(enumerate(job.params.sides))
    files = {
        what: {name: listed(given.get(f"{what}_{place}", [])) for place, name in places.items()}
        for what in tabulate_parts.FILES_OF
    }
    tabulate_parts.main(given.compared, files, job.output.csv)
