"""Estimates an ncu run before it starts, and chooses its replay and the configurations that a budget pays for."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from profzoo.errors import DataError
from profzoo.files import read_json, write_json
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.tools.ncu.costs import Cost
from profzoo.tools.ncu.metrics import GPU_TIME
from profzoo.tools.ncu.tables import CONFIGURATION as KEYS

# Estimates are good to a quarter, so that less of a difference is none.
CLEARLY = 0.75


@dataclass(frozen=True)
class Selection:
    """Launches to profile: their number, the configurations among them, the share of GPU time that these stand for.

    options: ncu's words that select them.
    """

    launches: int
    configurations: int
    share: float
    options: Sequence[str]


def plan(
    options: Mapping[str, Any],
    name: str,
    census: pd.DataFrame,
    census_wall_s: float,
    price: Cost,
    costs: Mapping[str, Any],
) -> dict[str, Any]:
    """How a section set of a cell is to be collected, and what that should take.

    Args:
        options: the configuration's `ncu`; name: of the section set.
        census: every launch of the cell's window, in order; census_wall_s: wall time of the process that took it.
        price: of one launch of the set; costs: the measured costs.

    Returns: replay mode, launches, configurations, share of GPU time, passes, start-up, seconds a launch, estimate,
    budget, and `options`, the words of ncu that all this comes to.

    Raises:
        DataError: the budget does not pay for a single launch, or no launch is of the kernels asked for.
    """
    start = max(census_wall_s - len(census) * costs["sets"][ncu.CENSUS]["seconds"], 0.0)
    wanted = census
    if options["kernel_name"] and ncu.launches(options, name) == "distinct":
        wanted = census[census["mangled"].str.contains(options["kernel_name"], regex=True)]
    budget = options["budget"]
    whole = whole_selection(options, name, wanted, census)
    if not whole.launches:
        raise DataError(f"ncu.kernel_name = {options['kernel_name']!r} matches none of the cell's kernels")

    def estimate(replay: str, launches: int) -> float:
        whole_process = start + (len(census) - launches) * costs["passed_over_s"]
        if replay == "kernel":
            return whole_process + launches * price.seconds
        return price.passes * (whole_process + launches * costs["application_pass_s"])

    asked = ncu.replay(options, name)
    replay = "kernel" if asked == "auto" else asked
    if asked == "auto" and estimate("application", whole.launches) < CLEARLY * estimate("kernel", whole.launches):
        replay = "application"
    chosen = whole
    if budget is not None and estimate(replay, whole.launches) > ncu.seconds(budget):
        # What a rerun costs is paid whatever is chosen, so a budget is spent launch by launch, in kernel replay.
        replay = "kernel" if asked == "auto" else replay
        paid = estimate(replay, 0)
        each = max(estimate(replay, 1) - paid, 1e-6)
        affordable = int((ncu.seconds(budget) - paid) / each)
        if affordable < 1:
            least = paid + each
            raise DataError(
                f"ncu.budget = {budget} does not pay for one launch of set {name}: starting takes {paid:.0f} s and a "
                f"launch {each:.2f} s; give {least + 1:.0f}s or more"
            )
        chosen = within(wanted, census, affordable)
    return {
        "set": name,
        "replay": replay,
        "launches": chosen.launches,
        "configurations": chosen.configurations,
        "configurations_of_window": whole.configurations,
        "share": round(chosen.share, 6),
        "passes": price.passes,
        "basis": price.basis,
        "start_s": round(start, 3),
        "launch_s": price.seconds,
        "estimate_s": round(estimate(replay, chosen.launches), 3),
        "budget": budget,
        "options": ["--replay-mode", replay, *chosen.options],
    }


def profiled(census: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """The launches of a window, of which the census has all in order, that ncu profiles by the words it is given.

    They are the first of each configuration, or those of the kernels and invocations that a budget pays for.
    """
    if "--kernel-id" in words:
        names, at = words[words.index("--kernel-id") + 1].removeprefix("::regex:").split(":")
        number = (census.groupby("mangled").cumcount() + 1).astype("str")
        return census[census["mangled"].str.fullmatch(names) & number.str.fullmatch(at)]
    if "--kernel-name" in words:
        name = words[words.index("--kernel-name") + 1].removeprefix("regex:")
        census = census[census["mangled"].str.contains(name, regex=True)]
    return census.drop_duplicates(KEYS) if "per-launch-config" in words else census


def unlike(taken: pd.DataFrame, expected: pd.DataFrame) -> pd.MultiIndex:
    """The launch configurations, as KEYS, that are not as often among the launches taken as among those expected."""
    counts = [frame.groupby(KEYS, dropna=False).size() for frame in (taken, expected)]
    both = pd.concat(counts, axis=1, keys=["taken", "expected"]).fillna(0)
    return pd.MultiIndex.from_tuples(both.index[both["taken"] != both["expected"]], names=KEYS)


def sentence(planned: Mapping[str, Any]) -> str:
    """The plan in one line."""
    of = planned["configurations_of_window"]
    what = f"{planned['launches']} launches, {planned['configurations']} of {of} configurations"
    passes = "1 pass" if planned["passes"] == 1 else f"{planned['passes']} passes"
    limit = "at most about" if planned["basis"] != "measured" else "about"
    return (
        f"ncu {planned['set']}: {what}, {planned['share']:.1%} of GPU time, {passes}, {planned['replay']} replay: "
        f"{limit} {planned['estimate_s']:.0f} s"
    )


def whole_selection(options: Mapping[str, Any], name: str, wanted: pd.DataFrame, census: pd.DataFrame) -> Selection:
    """What the configuration asks for, without regard to a budget."""
    chosen = ncu.launches(options, name)
    rows = wanted if chosen in ("distinct", "all") else wanted.iloc[: int(chosen)]
    configurations = len(rows[KEYS].drop_duplicates())
    return Selection(
        configurations if chosen == "distinct" else len(rows),
        configurations,
        rows[GPU_TIME].sum() / census[GPU_TIME].sum(),
        ncu.selection(options, name),
    )


def within(wanted: pd.DataFrame, census: pd.DataFrame, affordable: int) -> Selection:
    """The configurations with the largest share of GPU time whose profiling takes at most so many launches.

    ncu takes one `--kernel-id`, a pattern of names and one of invocations: it profiles every chosen kernel at every
    chosen invocation. So a configuration costs what it adds to that product, and the next in the order of their time
    is taken as long as the product stays affordable.
    """
    numbered = wanted.assign(invocation=wanted.groupby("mangled").cumcount() + 1)
    last = numbered.groupby("mangled")["invocation"].max().to_dict()
    groups = numbered.groupby(KEYS, sort=False, dropna=False)
    times = groups[GPU_TIME].sum()
    invocations = groups["invocation"].agg(list)
    kernels: set[str] = set()
    numbers: set[int] = set()

    def size(names: set[str], at: set[int]) -> int:
        return sum(number <= last[name] for name in names for number in at)

    for key in times.sort_values(ascending=False, kind="stable").index:
        candidates = [number for number in invocations[key] if number in numbers] or invocations[key][:1]
        grown = kernels | {key[0]}, numbers | {candidates[0]}
        if size(*grown) <= affordable:
            kernels, numbers = grown
    profiled = numbered[numbered["mangled"].isin(kernels) & numbered["invocation"].isin(numbers)]
    covered = profiled[KEYS].drop_duplicates().merge(times.rename("time").reset_index(), on=KEYS)
    names = "|".join(re.escape(name) for name in sorted(kernels))
    at = "|".join(str(number) for number in sorted(numbers))
    words = ["--kernel-name-base", "mangled", "--kernel-id", f"::regex:^({names})$:^({at})$"]
    return Selection(len(profiled), len(covered), covered["time"].sum() / census[GPU_TIME].sum(), words)


def main(
    options: Mapping[str, Any], name: str, census: str, sidecar: str, path: str, say: Callable[[str], object]
) -> None:
    """Read the census of a cell and its report's sidecar, write the plan of a section set, and say it.

    options: as of plan.
    """
    costs = ncu_costs.table()
    price = ncu_costs.cost(options["sets"][name], costs)
    planned = plan(options, name, pd.read_csv(census), read_json(sidecar)["wall_s"], price, costs)
    say(sentence(planned))
    write_json(planned, path)
