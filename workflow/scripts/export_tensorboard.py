"""Lays traces of torch.profiler out for TensorBoard."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tools.torch import tensorboard

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    tensorboard.main(given.trace, given.sidecar, as_list(given.get("more", [])), job.output.folder)
