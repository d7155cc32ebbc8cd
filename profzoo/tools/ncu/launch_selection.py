"""Selects the launches of a cell that ncu profiles: all requested ones, or as many as the time budget allows."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from profzoo.cell.plan_types import LaunchOptions, PlanOptions
from profzoo.errors import DataError
from profzoo.tools.communication_kernels import REPLAYED, user_expression
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import launch_sampling
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS


@dataclass(frozen=True)
class Selection:
    """The launches to profile, and the options by which ncu selects them.

    Attributes:
        launches: number of launches to profile.
        configurations: number of launch configurations among them.
        share: share of the window's GPU time that the selected configurations take, 0 to 1.
        options: command-line options of ncu for the first run.
        further: options of each additional run.
        error: expected relative error of totals; None without an estimate.
    """

    launches: int
    configurations: int
    share: float
    options: Sequence[str]
    further: Sequence[Sequence[str]] = ()
    error: float | None = None


def select_candidates(options: LaunchOptions, name: str, census: pd.DataFrame) -> pd.DataFrame:
    """Return the launches that a section set may profile: only kernels that match `kernel_name`, if that is set."""
    if not options["kernel_name"] or ncu.launch_selection(options, name) not in (ncu.SAMPLED, ncu.DISTINCT):
        return census
    return _named(census, options["kernel_name"])


def select_configured(options: LaunchOptions, name: str, launches: pd.DataFrame, census: pd.DataFrame) -> Selection:
    """Select the launches that the configuration requests, regardless of the budget.

    Args:
        options: the section `ncu` of the configuration.
        name: name of the section set.
        launches: rows of the census that the set may profile.
        census: one row per launch of the window.

    Raises:
        DataError: no launch matches.
    """
    chosen = ncu.launch_selection(options, name)
    one_each = chosen in (ncu.SAMPLED, ncu.DISTINCT)
    rows = launches if one_each or chosen == "all" else launches.iloc[: int(chosen)]
    if rows.empty:
        expression = options["kernel_name"] or ""
        others = " that do not communicate, and ncu cannot replay others" if expression.startswith(REPLAYED) else ""
        raise DataError(f"ncu.kernel_name = {user_expression(expression)!r} matches none of the cell's kernels{others}")
    configurations = len(rows[KEYS].drop_duplicates())
    return Selection(
        configurations if one_each else len(rows),
        configurations,
        rows[GPU_TIME].sum() / census[GPU_TIME].sum(),
        ncu.selection_options(options, name),
    )


def select_within_budget(launches: pd.DataFrame, census: pd.DataFrame, affordable: int) -> Selection:
    """Select the configurations with the most GPU time that can be profiled in at most `affordable` launches.

    `--kernel-id` holds one pattern of kernel names and one of invocation numbers, and ncu profiles every chosen kernel
    at every chosen invocation. The cost of a configuration is therefore the number of launches by which this product
    grows. Configurations are added in the order of their GPU time as long as the product stays affordable.

    Args:
        launches: rows of the census to choose from, in order.
        census: one row per launch of the window.
        affordable: most launches to profile.

    Kernels a and b are launched twice each, b with two different grids. The second grid of b is its second invocation,
    at which ncu would profile a too. With three launches, both kernels are profiled at their first invocation; four
    launches suffice for all:

    >>> census = pd.DataFrame({"mangled": ["a", "b", "b", "a"], GPU_TIME: [50, 30, 15, 5]})
    >>> census[KEYS[1:]] = 1
    >>> census.loc[2, "grid_x"] = 2
    >>> chosen = select_within_budget(census, census, 3)
    >>> chosen.launches, chosen.configurations, float(chosen.share), chosen.options[-1]
    (2, 2, 0.85, '::regex:^(a|b)$:^(1)$')
    >>> chosen = select_within_budget(census, census, 4)
    >>> chosen.launches, chosen.configurations, float(chosen.share), chosen.options[-1]
    (4, 3, 1.0, '::regex:^(a|b)$:^(1|2)$')
    """
    numbered = launches.assign(invocation=launches.groupby("mangled").cumcount() + 1)
    configurations = numbered.groupby(KEYS, sort=False, dropna=False)
    times, invocations = configurations[GPU_TIME].sum(), configurations["invocation"].agg(list)
    last = numbered.groupby("mangled")["invocation"].max().to_dict()
    names: set[str] = set()
    numbers: set[int] = set()
    for key in times.sort_values(ascending=False, kind="stable").index:
        # An invocation number that is chosen already adds the fewest launches.
        number = next((one for one in invocations[key] if one in numbers), invocations[key][0])
        grown = names | {key[0]}, numbers | {number}
        if _profiled_by(*grown, last) <= affordable:
            names, numbers = grown
    profiled = numbered[numbered["mangled"].isin(names) & numbered["invocation"].isin(numbers)]
    covered = profiled[KEYS].drop_duplicates().merge(times.rename("time").reset_index(), on=KEYS)
    share = covered["time"].sum() / census[GPU_TIME].sum()
    return Selection(len(profiled), len(covered), share, _kernel_id(names, numbers))


def select_sample(
    options: PlanOptions,
    name: str,
    launches: pd.DataFrame,
    census: pd.DataFrame,
    prices: launch_sampling.RunPrices,
    one_run: bool,
) -> Selection:
    """Select one launch per configuration, and more launches until the expected error is as small as requested.

    Args:
        options, name, launches, census: as for select_configured.
        prices: costs of a run and of a launch, and their limits.
        one_run: whether all launches have to be profiled in a single run.
    """
    wider = not options["kernel_name"]
    found = launch_sampling.choose_launches(launches, ncu.parse_percent(options["error"]), prices, not one_run, wider)
    first, *further = found.runs
    words = ncu.selection_options(options, name) if first.numbers == {1} else _of_each_configuration(first.numbers)
    rows = launches[found.taken]
    return Selection(
        found.launches,
        len(rows[KEYS].drop_duplicates()),
        launches[GPU_TIME].sum() / census[GPU_TIME].sum(),
        words,
        [_kernel_id(run.kernels or (), run.numbers) for run in further],
        found.error,
    )


def select_all(options: LaunchOptions, launches: pd.DataFrame, census: pd.DataFrame) -> Selection:
    """Select all launches of the window, or of the requested kernels, in one run; arguments as for select_sample."""
    named = [] if not options["kernel_name"] else ["--kernel-name", f"regex:{options['kernel_name']}"]
    share = launches[GPU_TIME].sum() / census[GPU_TIME].sum()
    words = ["--kernel-name-base", "mangled", *named]
    return Selection(len(launches), len(launches[KEYS].drop_duplicates()), share, words, error=0.0)


def _of_each_configuration(numbers: Collection[int]) -> list[str]:
    """Return ncu's options that select launches by their numbers within every configuration."""
    at = "|".join(str(number) for number in sorted(numbers))
    return ["--filter-mode", "per-launch-config", "--kernel-name-base", "mangled", "--kernel-id", f":::^({at})$"]


def _profiled_by(names: Collection[str], numbers: Collection[int], last: Mapping[str, int]) -> int:
    """Return how many launches ncu profiles of these kernels at these invocations; last: launches of each kernel.

    >>> _profiled_by({"a", "b"}, {1, 3}, {"a": 5, "b": 2})
    3
    """
    return sum(number <= last[name] for name in names for number in numbers)


def _kernel_id(names: Collection[str], numbers: Collection[int]) -> list[str]:
    """Return ncu's options that select kernels of these names at these invocations."""
    which = "|".join(re.escape(name) for name in sorted(names))
    at = "|".join(str(number) for number in sorted(numbers))
    return ["--kernel-name-base", "mangled", "--kernel-id", f"::regex:^({which})$:^({at})$"]


def profiled_launches(census: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """Return the launches of the census that ncu profiles when it is given these options.

    Args:
        census: one row per launch of the window, in order.
        words: options that select launches, as in Selection.options.
    """
    if "--kernel-id" in words:
        *_, names, at = words[words.index("--kernel-id") + 1].split(":")
        by = KEYS if "per-launch-config" in words else "mangled"
        number = (census.groupby(by, dropna=False).cumcount() + 1).astype("str")
        named = census["mangled"].str.fullmatch(names) if names else True
        return census[named & number.str.fullmatch(at)]
    if "--kernel-name" in words:
        name = words[words.index("--kernel-name") + 1].removeprefix("regex:")
        census = _named(census, name)
    return census.drop_duplicates(KEYS) if "per-launch-config" in words else census


def _named(census: pd.DataFrame, expression: str) -> pd.DataFrame:
    """Return the launches of kernels whose mangled names contain a match of the regular expression."""
    names = re.compile(expression)
    return census[[names.search(name) is not None for name in census["mangled"]]]


def differing_configurations(taken: pd.DataFrame, expected: pd.DataFrame) -> pd.MultiIndex:
    """Return the launch configurations (KEYS) that occur in `taken` and in `expected` with different counts."""
    counts = [frame.groupby(KEYS, dropna=False).size() for frame in (taken, expected)]
    both = pd.concat(counts, axis=1, keys=["taken", "expected"]).fillna(0)
    return pd.MultiIndex.from_tuples(both.index[both["taken"] != both["expected"]], names=KEYS)
