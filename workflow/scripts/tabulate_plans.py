"""Ranks the settings that are possible for every cell by what they are expected to gain."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.plans import plan_table

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    tables = {name: path for name in plan_table.TABLES if (path := given.get(name))}
    sidecars, programs = as_list(given.sidecars), as_list(given.get("programs", []))
    cast = as_list(given.get("chain_kernels", []))
    plan_table.main(tables, given.get("peaks") or None, sidecars, programs, job.output.csv, job.params.failed, cast)
