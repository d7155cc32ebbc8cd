"""Plans the collection of a section set of a cell: launches, replay and time, from the census and measured costs."""

import pandas as pd

from workflow.scripts.lib import ncu_costs, planning
from workflow.scripts.lib.files import read_json, reported, write_json

if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]) as say:
        options, name = snakemake.params.ncu, snakemake.wildcards.set
        costs = ncu_costs.table()
        planned = planning.plan(
            options,
            name,
            pd.read_csv(snakemake.input.census),
            read_json(snakemake.input.sidecar)["wall_s"],
            ncu_costs.cost(options["sets"][name], costs),
            costs,
        )
        say(f"{snakemake.wildcards.model} {snakemake.wildcards.phase}: {planning.sentence(planned)}")
        write_json(planned, snakemake.output.plan)
