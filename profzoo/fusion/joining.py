"""Finds the launches of chains in a trace of nsys, whose steps can be simulated."""

from collections.abc import Sequence

import pandas as pd

from profzoo.fusion.calls import TracedStep
from profzoo.fusion.chains import Chain
from profzoo.fusion.loops import EXPERTS
from profzoo.launches import differing_steps, joined_step
from profzoo.launches.joined_step import OWNER
from profzoo.tools.ncu.raw_page import CONFIGURATION

# Which chain a launch is of, and whether it stays as the launch of the fused kernel.
NUMBER, STAYS = "chain", "stays"
KEYS = ["range", *CONFIGURATION]
# Place of a launch in the step, and how many launches the step has.
PLACE, OF = "place", "of_launches"
# Whether the host's waits between launches of the chain disappear with it.
WAITS = "waits"
KERNELS = [NUMBER, PLACE, OF, *KEYS, "ns", STAYS, WAITS]


def join_chains(step: TracedStep, numbered: Sequence[tuple[int, Chain]], nsys: pd.DataFrame) -> pd.DataFrame:
    """Return KERNELS: a row per launch of a chain in a typical step of nsys, with its ns as a mean over steps.

    Where steps launch differently, that is the step of nsys with most launches in common with the step of the chains.

    Columns: `stays`, 1 if the launch remains as that of a fused kernel, else 0; `waits`, 1 if the host's waits between
    launches of the chain disappear with it, else 0. A batched product of all experts need not know how many rows each
    has.

    Args:
        numbered: chains of the step, each with a number, which several may share.
        nsys: launches by step, from tools.nsys.launches_by_step.
    """
    number, stays = pd.Series("", step.launches.index), pd.Series("", step.launches.index)
    for name, chain in numbered:
        mine = [launch for call in chain.calls for launch in call.launches]
        longest = sorted(mine, key=lambda launch: -float(step.launches["ns"].iloc[launch]))
        number.iloc[mine] = str(name)
        stays.iloc[longest[: round(chain.fused_launches)]] = STAYS
    blank = pd.Series("", step.launches.index)
    # Owners are what is carried over to matching launches.
    own = step.launches.assign(**dict.fromkeys(OWNER, blank)).assign(operator=number, shapes=stays)
    if differing_steps.traced_steps_differ(nsys):
        nsys = differing_steps.select_most_alike(nsys, own)
    found = joined_step.join_nsys_launches(nsys, own).launches
    columns = {PLACE: found["launch"], OF: len(found), STAYS: found["shapes"].eq(STAYS).astype("int64")}
    rows = found.assign(**columns)[found["operator"] != ""]
    waiting = {number for number, chain in numbered if chain.pattern == EXPERTS}
    numbers = rows["operator"].astype("int64")
    return rows.assign(**{NUMBER: numbers, WAITS: numbers.isin(waiting).astype("int64")})[KERNELS].reset_index(
        drop=True
    )
