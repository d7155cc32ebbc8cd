"""Makes a cell's tables of chains that could be fused, and of their kernels."""

from profzoo.fusion import table
from profzoo.io.scripts import begin_script

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    nsys = given.get("trace_database") or "", given.get("trace_database_sidecar") or ""
    peaks, programs = given.get("peaks") or "", given.get("program") or ""
    table.main(given.trace, nsys, peaks, programs, dict(job.output.items()))
