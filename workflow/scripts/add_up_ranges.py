"""Makes a cell's table of ranges that the program opened itself, and compares the launches of its steps."""

from profzoo.io.scripts import begin_script
from profzoo.tables import layers, repetition, user_ranges

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    others = layers.name_others(given, job.params.steps)
    torch = user_ranges.OfTorch(given.get("launches", ""), given.get("ranges", ""), given.get("sidecar", ""))
    user_ranges.write_user_ranges(torch, others, job.output.csv)
    repetition.main(torch.launches, others, job.output.repetition, job.output.launches)
