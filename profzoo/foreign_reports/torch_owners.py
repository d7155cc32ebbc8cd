"""Finds the operator that made each launch of a foreign torch.profiler trace."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.foreign_reports.host_nesting import enclosing_events, find_parents, sort_events

# Of launches whose operator the numbers of the trace name, and times tell, so many have to agree for numbers to count.
AGREEING = 0.95


@dataclass(frozen=True)
class LaunchOwners:
    """Who made what: positions in `operators`, -1 for none.

    operators: operators and their parents, sorted; of_calls: of each call, the innermost operator around it;
    call_of_launch: position of each launch's call; of_launches: the operator of each launch. by_number: launches whose
    operator is known by the trace's numbers alone.
    """

    operators: pd.DataFrame
    parents: np.ndarray
    of_calls: np.ndarray
    call_of_launch: np.ndarray
    of_launches: np.ndarray
    by_number: int


def find_owners(operators: pd.DataFrame, calls: pd.DataFrame, launches: pd.DataFrame) -> LaunchOwners:
    """Find the operator of each launch: the innermost one around its launching call, on the call's thread.

    Where the trace has no thread in common for calls and operators, or no calls, its `External id` counts, but only if
    it is not the correlation, and agrees with times wherever both are known.
    """
    ordered = sort_events(operators)
    parents = find_parents(ordered)
    of_calls = enclosing_events(ordered, parents, calls)
    call = call_positions(calls, launches)
    known = np.append(of_calls, -1)[call]
    named = _by_number(ordered, calls, launches, call)
    both = (known >= 0) & (named >= 0)
    agree = not both.any() or (named[both] == known[both]).mean() >= AGREEING
    use = (known < 0) & (named >= 0) & agree
    return LaunchOwners(ordered, parents, of_calls, call, np.where(use, named, known), int(use.sum()))


def call_positions(calls: pd.DataFrame, launches: pd.DataFrame) -> np.ndarray:
    """Return, per launch, the position of its launching call; -1 where the trace has none.

    A runtime call may share its correlation with the driver's call inside it: the outer one, which began first, counts.
    """
    known = calls[calls["correlation"] >= 0].sort_values("start", kind="stable")
    known = known.drop_duplicates("correlation")
    positions = pd.Series(known.index.to_numpy(), index=known["correlation"].to_numpy())
    found = launches["correlation"].map(positions).fillna(-1).astype("int64").to_numpy()
    return np.where(launches["correlation"].to_numpy() >= 0, found, -1)


def _by_number(operators: pd.DataFrame, calls: pd.DataFrame, launches: pd.DataFrame, call: np.ndarray) -> np.ndarray:
    """Return, per launch, the position of the operator that bears its number; -1 for none, or where numbers lie."""
    numbered = operators[operators["external"] >= 0].drop_duplicates("external", keep=False)
    positions = pd.Series(numbered.index.to_numpy(), index=numbered["external"].to_numpy())
    numbers = launches["external"].to_numpy()
    if not len(numbers) or (numbers == launches["correlation"].to_numpy()).mean() > 1 - AGREEING:
        return np.full(len(launches), -1, dtype=np.int64)
    found = launches["external"].map(positions).fillna(-1).astype("int64").to_numpy()
    # Whoever made it was open when it was made; without a call, it had begun before the launch ran.
    began, end = operators["start"].to_numpy(), (operators["start"] + operators["ns"]).to_numpy()
    made = np.append(calls["start"].to_numpy(), 0)[call]
    if not len(operators):
        return np.full(len(launches), -1, dtype=np.int64)
    fits = np.where(
        call >= 0, (began[found] <= made) & (made <= end[found]), began[found] <= launches["start"].to_numpy()
    )
    return np.where((found >= 0) & fits, found, -1)
