"""Finds the launches of chains in a trace of nsys, whose steps can be simulated."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profzoo.fusion.calls import TracedStep
from profzoo.fusion.chains import Chain
from profzoo.fusion.loops import EXPERTS
from profzoo.fusion.repeated_calls import TIMES
from profzoo.fusion.updates import NORMS
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
# Whether one call of a library makes all launches of the chain that remain.
TOGETHER = "together"
KERNELS = [NUMBER, PLACE, OF, *KEYS, "ns", STAYS, WAITS, TOGETHER]


def join_chains(step: TracedStep, numbered: Sequence[tuple[int, Chain]], nsys: pd.DataFrame) -> pd.DataFrame:
    """Return KERNELS: a row per launch of a chain in a typical step of nsys, with its ns as a mean over steps.

    Where steps launch differently, that is the step of nsys with most launches in common with the step of the chains.

    Columns: `stays`, 1 if the launch remains as that of a fused kernel, else 0; `waits`, 1 if the host's waits between
    launches of the chain disappear with it, else 0. A batched product of all experts need not know how many rows each
    has, and norms that are taken at once can be read at once. `together`, 1 if one call makes the launches that remain,
    else 0: a recurrence over all time steps is one call of cuDNN.

    Args:
        numbered: chains of the step, each with a number, which several may share.
        nsys: launches by step, from tools.nsys.launches_by_step.
    """
    launches = step.launches
    number, stays = pd.Series("", launches.index), pd.Series("", launches.index)
    for name, chain in numbered:
        mine = launches_of(chain)
        number.iloc[mine] = str(name)
        stays.iloc[_longest(mine, launches["ns"], chain)] = STAYS
    blank = pd.Series("", launches.index)
    # Owners are what is carried over to matching launches.
    own = launches.assign(**dict.fromkeys(OWNER, blank)).assign(
        operator=number, shapes=stays, caller=[str(place) for place in range(len(launches))]
    )
    if differing_steps.traced_steps_differ(nsys):
        nsys = differing_steps.select_most_alike(nsys, own)
    found = joined_step.join_nsys_launches(nsys, own).launches
    columns = {PLACE: found["launch"], OF: len(found), STAYS: found["shapes"].eq(STAYS).astype("int64")}
    waiting = [(name, chain) for name, chain in numbered if chain.pattern in (EXPERTS, NORMS)]
    rows = _with_loops(found.assign(**columns), [one for one in waiting if one[1].pattern == EXPERTS])
    rows = rows[rows["operator"] != ""]
    numbers = rows["operator"].astype("int64")
    waits = numbers.isin({name for name, _ in waiting}).astype("int64")
    recurrent = {name for name, chain in numbered if chain.pattern == TIMES}
    together = numbers.isin(recurrent).astype("int64")
    return rows.assign(**{NUMBER: numbers, WAITS: waits, TOGETHER: together})[KERNELS].reset_index(drop=True)


def launches_of(chain: Chain) -> list[int]:
    """Return the positions of a chain's launches in the step."""
    return [launch for call in chain.calls for launch in call.launches]


def _longest(launches: Sequence[int], ns: pd.Series, chain: Chain) -> list[int]:
    """Return those of the launches that remain when the chain is fused, the longest ones; ns: of all launches."""
    return sorted(launches, key=lambda launch: -float(ns.iloc[launch]))[: round(chain.fused_launches)]


def _with_loops(found: pd.DataFrame, loops: Sequence[tuple[int, Chain]]) -> pd.DataFrame:
    """Return launches of nsys's step with all that lie within loops over experts given to these.

    How many rows an expert has differs between steps, and so do the shapes of its launches, which then match nothing.
    But the launches before and behind a loop match.

    Args:
        found: launches with `caller`, the place of the match in torch's step, empty without one.
        loops: the chains with their numbers.
    """
    places = pd.to_numeric(found["caller"]).to_numpy(dtype=float)
    operator, stays = found["operator"].to_numpy(dtype=object).copy(), found[STAYS].to_numpy().copy()
    for name, chain in loops:
        mine = launches_of(chain)
        before, behind = np.flatnonzero(places < min(mine)), np.flatnonzero(places > max(mine))
        first = int(before.max()) + 1 if before.size else 0
        last = int(behind[behind >= first].min()) if (behind >= first).any() else len(found)
        inside = [row for row in range(first, last) if operator[row] in ("", str(name))]
        operator[inside], stays[inside] = str(name), 0
        stays[_longest(inside, found["ns"], chain)] = 1
    return found.assign(operator=operator, **{STAYS: stays})
