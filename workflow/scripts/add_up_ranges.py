"""Makes a cell's table of ranges that the program opened itself, and compares the launches of its steps."""

from profzoo.io.scripts import begin_script
from profzoo.tables import layer_sums, range_sums, repetition

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    others = layer_sums.name_others(given, job.params.steps)
    torch = range_sums.OfTorch(given.get("launches", ""), given.get("ranges", ""), given.get("sidecar", ""))
    range_sums.main(torch, others, job.output.csv)
    repetition.main(torch.launches, others, job.output.repetition, job.output.launches)
