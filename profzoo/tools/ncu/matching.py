"""Finds what was profiled among the launches of the census, and says how many of these each stands for."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from profzoo.tools.ncu import selection
from profzoo.tools.ncu.estimates import Estimates, half_width
from profzoo.tools.ncu.metrics import GPU_TIME
from profzoo.tools.ncu.strata import Window
from profzoo.tools.ncu.tables import CONFIGURATION as KEYS

# What the table of a section set says of each row besides, behind `launches`.
COLUMNS = ["run", "launch", "as_planned", "stratum", "weight", "time_spread"]


def matched(runs: Mapping[int, pd.DataFrame], words: Sequence[Sequence[str]], census: pd.DataFrame) -> pd.DataFrame:
    """The rows of all runs, one below the other, with COLUMNS.

    Args:
        runs: by number, from 1, what each profiled, in order; words: those of ncu for each; census: every launch, in
            order.

    `id` is unique. `launch` is the place in the census, from 0, by order within the configuration; empty for kernels
    that the census lacks. `as_planned` says whether as many launches of the configuration were profiled as the words
    and the census say; where not, the row is taken to be the next launch of its configuration. `stratum` numbers those
    that stand for the same launches, `weight` is for how many of these each stands, and `time_spread` the longest of
    these over the shortest.
    """
    frames: list[pd.DataFrame] = []
    for number, taken in runs.items():
        expected = selection.profiled(census, words[number - 1])
        doubtful = _among(taken, selection.unlike(taken, expected))
        # A kernel that the census lacks matches nothing.
        launch = _places(taken, expected).where(~doubtful, _places(taken, census))
        # Numbers of further runs go on from those of the first, which ncu's own pages of details name.
        first = 0 if number == 1 else 1 + max(int(frame["id"].max()) for frame in frames) if frames else 0
        told = {"id": taken["id"] + first, "run": number, "launch": launch.astype("Int64"), "as_planned": ~doubtful}
        frames.append(taken.assign(**told))
    table = pd.concat(frames, ignore_index=True)
    return _in_front(_weighed(table, census))


def other_launches(runs: Mapping[int, pd.DataFrame], words: Sequence[Sequence[str]], census: pd.DataFrame) -> list[str]:
    """Functions of kernels of which other launches were profiled than ncu was asked for; arguments as of matched."""
    functions: list[str] = []
    for number, own in enumerate(words, 1):
        expected = selection.profiled(census, own)
        taken = runs.get(number, expected.iloc[:0])
        either = pd.concat([taken[["mangled", *KEYS[1:], "function"]], expected[["mangled", *KEYS[1:], "function"]]])
        doubtful = _among(either.reset_index(drop=True), selection.unlike(taken, expected)).to_numpy()
        functions += list(either.loc[doubtful & either["mangled"].isin(census["mangled"]).to_numpy(), "function"])
    return list(dict.fromkeys(functions))


def _weighed(table: pd.DataFrame, census: pd.DataFrame) -> pd.DataFrame:
    """The rows with what they stand for."""
    known = table["launch"].notna()
    window = Window(census)
    found = Estimates(window, table.loc[known, "launch"].to_numpy(dtype=int), pd.DataFrame(index=table.index[known]))
    labels = found.labels()
    times = census[GPU_TIME].groupby(labels)
    stratum = pd.Series(labels[table.loc[known, "launch"].to_numpy(dtype=int)], table.index[known])
    table.loc[known, "stratum"] = stratum
    table.loc[known, "weight"] = found.weights()
    table.loc[known, "time_spread"] = stratum.map(times.max() / times.min()).round(4)
    return table.astype({"stratum": "Int64"})


def _in_front(table: pd.DataFrame) -> pd.DataFrame:
    place = table.columns.get_loc("launches") + 1
    rest = [name for name in table.columns if name not in COLUMNS]
    return table[[*rest[:place], *COLUMNS, *rest[place:]]]


def _among(table: pd.DataFrame, configurations: pd.MultiIndex) -> pd.Series:
    """Which rows are of these configurations."""
    return pd.Series(pd.MultiIndex.from_frame(table[KEYS]).isin(configurations), table.index)


def _places(taken: pd.DataFrame, launches: pd.DataFrame) -> pd.Series:
    """The places, by index, of launches that rows are: the first of a configuration is its first, and so on."""
    numbered = [frame[KEYS].assign(number=frame.groupby(KEYS, dropna=False).cumcount()) for frame in (taken, launches)]
    known = numbered[1].assign(place=launches.index)
    merged = numbered[0].merge(known, how="left", on=[*KEYS, "number"])
    return pd.Series(merged["place"].to_numpy(), taken.index)


def totals(table: pd.DataFrame, census: pd.DataFrame, metrics: Sequence[str]) -> dict[str, list[float]]:
    """Of each metric that adds up over launches, its total over the window, and the interval that holds it nine times
    in ten; table: as `matched` has it."""
    known = table["launch"].notna()
    summed = [name for name in metrics if name.endswith(".sum") and pd.api.types.is_numeric_dtype(table[name])]
    values = table.loc[known, summed].astype("float64").dropna(axis=1)
    found = Estimates(Window(census), table.loc[known, "launch"].to_numpy(dtype=int), values)
    whole = found.totals(np.zeros(len(census), dtype=int)).iloc[0]
    said = {}
    for name in values:
        wide = float(half_width(np.array([whole[f"{name}_se"]]), np.array([whole[f"{name}_freedom"]]))[0])
        said[name] = [float(whole[name]), max(float(whole[name]) - wide, 0.0), float(whole[name]) + wide]
    return said
