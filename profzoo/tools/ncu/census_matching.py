"""Matches profiled launches with the census and computes how many launches each one stands for."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from profzoo.tools.ncu import launch_selection
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.estimates import Estimates, interval_half_width
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window

# Columns that are added to the table of a section set, after `launches`.
COLUMNS = ["run", "launch", "as_planned", "stratum", "multiplicity", "time_spread"]


def match_runs(
    runs: Mapping[int, pd.DataFrame], words: Sequence[Sequence[str]], window: Window
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of all runs with COLUMNS, and the functions whose launches were not profiled as planned.

    Args:
        runs: profiled launches of each run, in order, by number of the run from 1; a run may have profiled nothing.
        words: options of ncu for each run.
        window: all launches of the census.

    `id` is unique. `launch` is the position in the census, from 0, found by the order within the configuration; it is
    empty for kernels that the census lacks. `as_planned` is false if the number of profiled launches of the
    configuration differs from the plan; the row is then taken to be the next launch of its configuration. Rows with the
    same `stratum` represent the same launches. `multiplicity` is the number of launches that a row represents, and
    `time_spread` is the longest over the shortest time of these.
    """
    frames: list[pd.DataFrame] = []
    functions: list[str] = []
    for number, own in enumerate(words, 1):
        expected = launch_selection.profiled_launches(window.launches, own)
        taken = runs.get(number, expected.iloc[:0])
        unlike = launch_selection.differing_configurations(taken, expected)
        functions += _functions(taken, expected, unlike, window.launches)
        if number not in runs:
            continue
        doubtful = _among(taken, unlike)
        # A kernel that the census lacks has no match.
        launch = _places(taken, expected).where(~doubtful, _places(taken, window.launches))
        # Numbers of further runs go on from those of the first, which ncu's own pages of details name.
        first = 0 if number == 1 else 1 + max(int(frame["id"].max()) for frame in frames) if frames else 0
        told = {"id": taken["id"] + first, "run": number, "launch": launch.astype("Int64"), "as_planned": ~doubtful}
        frames.append(taken.assign(**told))
    table = pd.concat(frames, ignore_index=True)
    return _in_front(_weighed(table, window)), list(dict.fromkeys(functions))


def _functions(
    taken: pd.DataFrame, expected: pd.DataFrame, unlike: pd.MultiIndex, census: pd.DataFrame
) -> Sequence[str]:
    """Return the functions of the kernels of these configurations, without kernels that the census lacks."""
    either = pd.concat([frame[[*KEYS, "function"]] for frame in (taken, expected)], ignore_index=True)
    found = either.loc[_among(either, unlike) & either["mangled"].isin(census["mangled"]), "function"]
    return list(found)


def _weighed(table: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Return the rows with stratum and multiplicity."""
    known = table["launch"].notna()
    found = Estimates(window, table.loc[known, "launch"].to_numpy(dtype=int), pd.DataFrame(index=table.index[known]))
    labels = found.labels()
    times = window.launches[GPU_TIME].groupby(labels)
    stratum = pd.Series(labels[table.loc[known, "launch"].to_numpy(dtype=int)], table.index[known])
    table.loc[known, "stratum"] = stratum
    table.loc[known, "multiplicity"] = found.weights()
    table.loc[known, "time_spread"] = stratum.map(times.max() / times.min()).round(4)
    return table.astype({"stratum": "Int64"})


def _in_front(table: pd.DataFrame) -> pd.DataFrame:
    place = table.columns.get_loc("launches") + 1
    rest = [name for name in table.columns if name not in COLUMNS]
    return table[[*rest[:place], *COLUMNS, *rest[place:]]]


def _among(table: pd.DataFrame, configurations: pd.MultiIndex) -> pd.Series:
    """Return a mask of the rows that have one of these launch configurations."""
    return pd.Series(pd.MultiIndex.from_frame(table[KEYS]).isin(configurations), table.index)


def _places(taken: pd.DataFrame, launches: pd.DataFrame) -> pd.Series:
    """Return the position of each row's launch: the n-th row of a configuration is its n-th launch."""
    numbered = [frame[KEYS].assign(number=frame.groupby(KEYS, dropna=False).cumcount()) for frame in (taken, launches)]
    known = numbered[1].assign(place=launches.index)
    merged = numbered[0].merge(known, how="left", on=[*KEYS, "number"])
    return pd.Series(merged["place"].to_numpy(), taken.index)


def estimate_totals(table: pd.DataFrame, window: Window, metrics: Sequence[str]) -> dict[str, list[float]]:
    """Estimate [total, low, high] over the window for each additive metric, with a 90 % confidence interval.

    table: result of match_runs; metrics: names of collected metrics.
    """
    known = table["launch"].notna()
    summed = [name for name in metrics if name.endswith(".sum") and pd.api.types.is_numeric_dtype(table[name])]
    values = table.loc[known, summed].astype("float64").dropna(axis=1)
    found = Estimates(window, table.loc[known, "launch"].to_numpy(dtype=int), values)
    whole = found.totals(np.zeros(len(window.launches), dtype=int)).iloc[0]
    said = {}
    for name in values:
        wide = float(interval_half_width(np.array([whole[f"{name}_se"]]), np.array([whole[f"{name}_freedom"]]))[0])
        said[name] = [float(whole[name]), max(float(whole[name]) - wide, 0.0), float(whole[name]) + wide]
    return said
