"""Writes the launches of an imported trace of torch.profiler as an export of Nsight Systems."""

from profzoo.foreign_reports import nsys_of_torch
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given, made = job.input, job.output
    nsys_of_torch.main(given.trace, given.told, made.sqlite, made.sidecar)
