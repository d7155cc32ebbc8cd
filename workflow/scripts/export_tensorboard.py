"""Lays traces of torch.profiler out for TensorBoard."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tools.torch import export

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    export.write_tensorboard(given.trace, given.sidecar, as_list(given.get("more", [])), job.output.folder)
