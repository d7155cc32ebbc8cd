"""Select the advice of ncu's own rules on a cell's kernels, by its value for the whole step."""

import pandas as pd

from profzoo.kernels.kernel_classes import classify
from profzoo.tables.ncu_coverage import KEYS
from profzoo.tables.step_shares import amdahl
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu.details_page import SPEEDUP
from profzoo.tools.ncu.raw_page import function_name
from profzoo.verdicts.verdict import Verdict

# Rows per cell.
MAX_ROWS = 5
# ncu's word for a speed-up of the whole launch; a `local` one is of the unit that the rule looks at.
WHOLE = "global"


def tabulate_ncu_advice(
    details: pd.DataFrame, launches: pd.DataFrame, kernels: pd.DataFrame, share: float
) -> list[Verdict]:
    """Return verdicts, the largest saving first, at most MOST, one per function and rule.

    Args:
        details: ncu's details page; launches: id and launch configuration of each launch on it.
        kernels: the cell's kernel table; share: that its GPU time has of the step.

    ncu estimates how much faster one launch would get, by which a launch of 1 µs may lead. What counts is the time that
    all launches of its configuration take: `share` of the step, and `gain` of the whole step where the estimate is of
    the whole launch. Both are empty for launches whose configuration the kernel table lacks.
    """
    if SPEEDUP not in details:
        return []
    said = details[details["Rule Type"].eq("OPT") & details[SPEEDUP].gt(0)].rename(columns={SPEEDUP: "percent"})
    times = kernels.groupby(KEYS)["total_ns"].sum() / kernels["total_ns"].sum() * share
    known = launches.drop_duplicates("id").set_index("id")
    keys = pd.MultiIndex.from_frame(known.reindex(said["ID"])[KEYS])
    said = said.assign(
        function=said["Kernel Name"].map(function_name), share=times.reindex(keys).to_numpy(dtype="float64")
    )
    said["saved"] = said["share"] * said["percent"] / 100
    said = said.sort_values(["saved", "percent"], ascending=False, kind="stable", na_position="last")
    return [
        Verdict(
            level="kernel",
            kernel_class=classify(row["Kernel Name"]),
            function=row["function"],
            verdict=f"ncu: {row['Rule Name']}",
            metric=f"estimated speed-up, {row['Estimated Speedup Type']}, %",
            value=row["percent"],
            share=row["share"],
            evidence=f"ncu-details.csv: launch {row['ID']}",
            gain=amdahl(min(row["saved"], 0.99), 1) if row["Estimated Speedup Type"] == WHOLE else None,
            next_step=row["Rule Description"],
            by=TOOL,
            source=f"ncu, section {row['Section Name']}",
        )
        for _, row in said.drop_duplicates(["function", "Rule Name"]).head(MAX_ROWS).iterrows()
    ]
