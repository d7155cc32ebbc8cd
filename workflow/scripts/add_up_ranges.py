"""Makes a cell's table of ranges that the program opened itself."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tables import layer_sums, range_sums

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    others = layer_sums.Others(
        census=given.get("census", ""),
        steps=job.params.steps,
        sets=as_list(given.get("sets", [])),
        nsys=given.get("trace_database", ""),
        sidecar=given.get("trace_database_sidecar", ""),
        peaks=given.get("peaks", ""),
    )
    torch = range_sums.OfTorch(given.get("launches", ""), given.get("ranges", ""), given.get("sidecar", ""))
    range_sums.main(torch, others, job.output.csv)
