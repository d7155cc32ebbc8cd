"""Puts differences between sides down to parts of the step, layers and kernels."""

from profzoo.compare import contributions
from profzoo.io.scripts import as_list, begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, places = job.input, dict(enumerate(job.params.sides))
    files = {
        what: {name: as_list(given.get(f"{what}_{place}", [])) for place, name in places.items()}
        for what in contributions.FILES_OF
    }
    contributions.write_contribution_table(given.compared, files, job.output.csv)
