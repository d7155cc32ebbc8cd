"""Plans the collection of a section set of a cell."""

from profzoo.files import listed, reported
from profzoo.tools.ncu import planning

snakemake = globals()["snakemake"]
with reported(snakemake.log[0]) as say:
    given = snakemake.input
    options, name = snakemake.params.ncu, snakemake.wildcards.set
    (census, sidecar, *untold), probe = given.launches, listed(given.get("probe", []))
    planning.main(options, name, census, sidecar, snakemake.output.plan, say, probe, *untold)
