"""How many launches `sampled` and the plans choose over cells that nsys has traced, against one of each configuration.

python -m tests.benchmarks.planned_launches RESULTS ...

RESULTS are folders that hold MODEL/PHASE.nsys-launches.csv; prices are those of the set survey as shipped, and a start of
ncu takes as long as in counted_truth. Nothing is run.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from profzoo.config import configuration as config
from profzoo.tools.ncu import costs, export_schema, run_planning
from tests.benchmarks.counted_truth import START_S

SET = "survey"


def planned(folders: Sequence[Path]) -> Iterator[tuple]:
    """Of each cell its launches, configurations, launches that a sample takes, those of the plan, and its seconds."""
    options, known = config.normalise_config({})["ncu"], costs.load_costs()
    price = costs.estimate_cost(options["sets"][SET], known)
    for path in sorted(path for folder in folders for path in folder.glob(f"*/*{export_schema.OF_NSYS}")):
        census = export_schema.read_census(path)
        plan = run_planning.plan_collection(options, SET, census, START_S, price, known)
        sample = plan.get("instead_of", plan)["launches"]
        cell = f"{path.parent.name}/{path.name.partition('.')[0]}"
        yield cell, len(census), plan["configurations_of_window"], sample, plan["launches"], plan["estimate_s"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.planned_launches", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    names = ["cell", "launches", "configurations", "sampled", "planned", "seconds"]
    table = pd.DataFrame(planned(given.results), columns=names).set_index("cell")
    print(table.to_string())
    for name in ("sampled", "planned"):
        ratio = table[name] / table["configurations"]
        whole = table[name].sum() / table["configurations"].sum()
        mean = f"{ratio.mean():.2f} times as many as configurations in the mean of {len(table)} cells"
        print(f"{name}: {mean}, {ratio.min():.2f} to {ratio.max():.2f}; {whole:.2f} times in all")
    print(f"{table['seconds'].sum():.0f} s by the plans")


if __name__ == "__main__":
    main()
