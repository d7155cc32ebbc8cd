"""Selects the launches of a cell that ncu profiles: all configured ones, or as many as a budget pays for."""

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
    """Launches to profile: their number, the configurations among them, the share of GPU time that these stand for.

    options: ncu's words that select them; further: those of each run more. error: of totals, as is expected.
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

    options: the configuration's `ncu`; name: of the section set; launches: those that it may take, of the census.

    Raises:
        DataError: that is no launch.
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

    ncu takes one `--kernel-id`, a pattern of names and one of invocations: it profiles every chosen kernel at every
    chosen invocation. So a configuration costs what it adds to that product, and the next in the order of their time
    is taken as long as the product stays affordable.

    launches: those to choose from, in order; census: every launch of the window.

    Kernel b is launched with two grids, and a, which takes longest, as often. The second grid of b is at its second
    invocation, at which a would be profiled too: three launches pay for a and b at their first, four for all.

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
        # One at an invocation that is chosen already adds the least.
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

    options, name, launches, census: as of whole. prices: what a run and a launch take, and may take in all. one_run:
    whether there may be no more than one.
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
    """Select all launches of the window, or of the requested kernels, in one run; arguments as in `select_sample`."""
    named = [] if not options["kernel_name"] else ["--kernel-name", f"regex:{options['kernel_name']}"]
    share = launches[GPU_TIME].sum() / census[GPU_TIME].sum()
    words = ["--kernel-name-base", "mangled", *named]
    return Selection(len(launches), len(launches[KEYS].drop_duplicates()), share, words, error=0.0)


def _of_each_configuration(numbers: Collection[int]) -> list[str]:
    """ncu's words for these launches of every configuration."""
    at = "|".join(str(number) for number in sorted(numbers))
    return ["--filter-mode", "per-launch-config", "--kernel-name-base", "mangled", "--kernel-id", f":::^({at})$"]


def _profiled_by(names: Collection[str], numbers: Collection[int], last: Mapping[str, int]) -> int:
    """Launches that ncu profiles of kernels of these names at these invocations; last: of each, how many it has.

    >>> _profiled_by({"a", "b"}, {1, 3}, {"a": 5, "b": 2})
    3
    """
    return sum(number <= last[name] for name in names for number in numbers)


def _kernel_id(names: Collection[str], numbers: Collection[int]) -> list[str]:
    """ncu's words for kernels of these names at these invocations."""
    which = "|".join(re.escape(name) for name in sorted(names))
    at = "|".join(str(number) for number in sorted(numbers))
    return ["--kernel-name-base", "mangled", "--kernel-id", f"::regex:^({which})$:^({at})$"]


def profiled_launches(census: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """Return the launches of the census that ncu profiles when it is given these options.

    They are launches of each configuration, or those of some kernels and invocations.
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
    """The launches of kernels in whose mangled names an expression is found."""
    names = re.compile(expression)
    return census[[names.search(name) is not None for name in census["mangled"]]]


def differing_configurations(taken: pd.DataFrame, expected: pd.DataFrame) -> pd.MultiIndex:
    """Return the launch configurations (KEYS) that occur in `taken` and in `expected` with different counts."""
    counts = [frame.groupby(KEYS, dropna=False).size() for frame in (taken, expected)]
    both = pd.concat(counts, axis=1, keys=["taken", "expected"]).fillna(0)
    return pd.MultiIndex.from_tuples(both.index[both["taken"] != both["expected"]], names=KEYS)
