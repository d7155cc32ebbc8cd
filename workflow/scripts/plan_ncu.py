"""Plans the collection of a section set of a cell."""

from profzoo.io.scripts import as_list, begin_script
from profzoo.tools.ncu import run_planning

snakemake = globals()["snakemake"]
with begin_script(snakemake) as job:
    given = job.input
    options, name = job.params.ncu, job.wildcards.set
    (census, sidecar, *untold), probe = given.launches, as_list(given.get("probe", []))
    run_planning.main(options, name, census, sidecar, job.output.plan, job.say, probe, *untold)
