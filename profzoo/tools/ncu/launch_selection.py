"""Selects the launches of a cell that ncu profiles: all requested ones, or as many as the time budget allows."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from profzoo.cell.job_types import LaunchOptions, PlanOptions
from profzoo.errors import DataError
from profzoo.tools.kernel_signature import REPLAYED, user_expression
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu.estimates import ALIKE, GPU_TIME, NINE_IN_TEN, UNSEEN, Window
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

# Chooses launches from whose counters the totals of a window are estimated, in few runs of ncu.
#
# ncu can select launches by their number within each launch configuration, or by kernel names and invocation numbers.
# In the second case it profiles every chosen kernel at every chosen invocation. Therefore the first run takes the first
# launch of each configuration, and perhaps launches with further numbers; each additional run takes kernels and
# invocations. Every next choice is the one that reduces the expected variance of the totals most per second. This is
# Neyman's allocation (Cochran, Sampling Techniques, 1977, 5.5) with ncu's costs. It ends when the expected error is
# small enough.

# At the default error, more than MOST launches per configuration are not worth their time. FEW launches beyond one per
# configuration are always allowed: in a step with few configurations, one launch represents many others.
MOST, FEW = 1.5, 40
RUNS = 6
# Starting another run is taken to cost at most as much as profiling this share of the first run's launches.
WORTH = 0.2
# Number of launches of a cell that are tried, and number of launches from which another run is composed.
TRIED, SEEDS = 3, 80


@dataclass(frozen=True)
class Run:
    """The launches that one run of ncu profiles.

    Attributes:
        numbers: numbers of launches, from 1: within each configuration, or within each kernel if `kernels` is set.
        kernels: mangled names; None for all configurations.
    """

    numbers: frozenset[int]
    kernels: frozenset[str] | None = None


@dataclass(frozen=True)
class RunPrices:
    """The costs of profiling, and their limits.

    Attributes:
        start_s: seconds that a run takes to start.
        launch_s: seconds that profiling one launch takes.
        launches: most launches to profile.
        seconds: most seconds to spend.
    """

    start_s: float
    launch_s: float
    launches: int
    seconds: float = float("inf")

    def of(self, launches: int, runs: int) -> float:
        """Return the seconds that profiling `launches` launches in `runs` runs takes."""
        return runs * self.start_s + launches * self.launch_s


@dataclass(frozen=True)
class LaunchSample:
    """The launches chosen for profiling.

    Attributes:
        runs: the runs of ncu.
        taken: one flag per launch that could be chosen, in order: a run profiles it.
        launches: number of profiled launches in all runs together; a launch in two runs counts twice.
        error: expected half width of the totals' 90 % intervals, relative.
    """

    runs: list[Run]
    taken: np.ndarray
    launches: int
    error: float


class LaunchSampling:
    """The launches of a window, and the variance of totals to expect from a choice of them, before profiling."""

    def __init__(self, census: pd.DataFrame) -> None:
        """Prepare the choice; census: one row per launch, in order, with KEYS, `range` and GPU_TIME in ns."""
        self.window = Window(census)
        self.kernels = census["mangled"].to_numpy(dtype=object)
        self.codes, names = pd.factorize(self.kernels, use_na_sentinel=False)
        self.code_of = {name: code for code, name in enumerate(names)}
        self.of_configuration = census.groupby(KEYS, sort=False, dropna=False).cumcount().to_numpy() + 1
        self.of_kernel = census.groupby("mangled", sort=False).cumcount().to_numpy() + 1
        self.known: dict[tuple[int, bytes], np.ndarray] = {}

    def samples(self, taken: np.ndarray) -> np.ndarray:
        """Return the number of chosen launches of each cell, shape (cells,); taken: a mask or positions."""
        return np.bincount(self.window.cells[taken], minlength=len(self.window.sizes))

    def takes(self, run: Run) -> np.ndarray:
        """Return a mask of the launches that a run profiles."""
        if run.kernels is None:
            return _among(self.of_configuration, run.numbers)
        named = _among(self.codes, [self.code_of[kernel] for kernel in run.kernels if kernel in self.code_of])
        return named & _among(self.of_kernel, run.numbers)

    def variance(self, samples: np.ndarray) -> np.ndarray:
        """Return the expected relative variances of the totals of work and of traffic, shape (2,).

        samples: number of profiled launches of each cell, shape (cells,).
        """
        parts = self.window.parts
        return sum((self.part(one, samples[part]) for one, part in enumerate(parts)), np.zeros(2))

    def gain(self, samples: np.ndarray, rows: np.ndarray) -> float:
        """Return by how much the sum of both variances falls if further launches are profiled.

        Args:
            samples: number of profiled launches of each cell so far.
            rows: positions of the further launches.
        """
        more = np.minimum(samples + np.bincount(self.window.cells[rows], minlength=len(samples)), self.window.sizes)
        gain = 0.0
        for one in sorted(set(self.window.configurations[self.window.cells[rows]].tolist())):
            part = self.window.parts[one]
            gain += float((self.part(one, samples[part]) - self.part(one, more[part])).sum())
        return gain

    def part(self, configuration: int, samples: np.ndarray) -> np.ndarray:
        """Return the two variances of one configuration; without a profiled launch, the error is the whole total.

        samples: number of profiled launches of each of its cells.
        """
        key = configuration, samples.tobytes()
        if key not in self.known:
            self.known[key] = self._part(configuration, samples)
        return self.known[key]

    def _part(self, configuration: int, samples: np.ndarray) -> np.ndarray:
        window, part = self.window, self.window.parts[configuration]
        sizes, by = window.sizes[part], window.standing(configuration, samples)
        if by is None:
            return (np.array([window.times[part] @ sizes, window.moved[part] @ sizes]) / window.totals) ** 2
        here = np.arange(len(part))
        there = np.flatnonzero(samples)
        size, taken = np.bincount(by, sizes, minlength=len(part))[there], samples[there]
        # Chance differences between the launches of a stratum; then the differences between its cells.
        chance = size**2 * np.maximum(1 / taken - 1 / size, 0)
        found = []
        for unlike, spread in (
            (window.work[configuration], UNSEEN * window.times[part]),
            (window.traffic[configuration], ALIKE * window.moved[part]),
        ):
            shared = np.bincount(by, sizes * unlike[here, by], minlength=len(part))
            found.append((shared**2).sum() + chance @ spread[there] ** 2)
        return np.array(found) / window.totals**2


def _among(values: np.ndarray, wanted: Collection[int]) -> np.ndarray:
    """Whether each value, from 0 on, is one of those wanted: as np.isin, which is slow for few."""
    known = np.zeros(max(int(values.max(initial=0)), *wanted, 0) + 1, dtype=bool)
    known[list(wanted)] = True
    return known[values]


def relative_half_width(variance: np.ndarray) -> float:
    """Return half the width of the 90 % interval for the less certain one of two totals; variance: relative."""
    return float(NINE_IN_TEN * np.sqrt(variance.max()))


def choose_launches(
    census: pd.DataFrame, wanted: float, prices: RunPrices, several: bool = True, wider: bool = True
) -> LaunchSample:
    """Choose the launches to profile, and the ncu runs that profile them.

    Args:
        census: every launch that may be profiled, in order, with KEYS, `range` and GPU_TIME in ns.
        wanted: relative error of the totals to reach, if `prices` allow it.
        prices: costs of profiling, and their limits.
        several: whether more than one run is allowed.
        wider: whether the first run may take more than the first launch of each configuration.

    One kernel is launched four times. The third launch takes 100 us, each other one 10 us. The first and the third
    launch are chosen:

    >>> from profzoo.tools.ncu.estimates import GPU_TIME
    >>> census = pd.DataFrame({"mangled": ["a"] * 4, "range": "forward", GPU_TIME: [1e4, 1e4, 1e5, 1e4]})
    >>> census[KEYS[1:]] = 1
    >>> sample = choose_launches(census, 0.2, RunPrices(start_s=5.0, launch_s=0.2, launches=4))
    >>> sample.runs, sample.taken.tolist()
    ([Run(numbers=frozenset({1, 3}), kernels=None)], [True, False, True, False])
    """
    search = _Search(LaunchSampling(census), wanted, prices, several, wider)
    while search.add():
        pass
    return LaunchSample(search.runs, search.taken, search.launches, relative_half_width(search.variance()))


@dataclass
class _Search:
    """Extends a choice of launches step by step by those that reduce its variance most per second."""

    sampling: LaunchSampling
    wanted: float
    prices: RunPrices
    several: bool
    wider: bool
    runs: list[Run] = field(default_factory=lambda: [Run(frozenset({1}))])

    def __post_init__(self) -> None:
        self.taken = self.sampling.takes(self.runs[0])
        self.launches = int(self.taken.sum())
        self.launch_s = max(self.prices.launch_s, self.prices.start_s / (WORTH * self.launches))

    def variance(self) -> np.ndarray:
        return self.sampling.variance(self.sampling.samples(self.taken))

    def add(self) -> bool:
        """Add the launches that reduce the variance most per second; return whether any were added."""
        if relative_half_width(self.variance()) <= self.wanted:
            return False
        samples = self.sampling.samples(self.taken)
        seeds = self._seeds(samples)
        options = [*self._wider(samples, seeds)] if self.wider else []
        if self.several and len(self.runs) < RUNS:
            options += self._further(samples, seeds)
        if not options:
            return False
        _, self.runs = max(options, key=lambda option: option[0])
        self.taken = np.any([self.sampling.takes(run) for run in self.runs], axis=0)
        self.launches = sum(int(self.sampling.takes(run).sum()) for run in self.runs)
        return True

    def _fits(self, launches: int, runs: int) -> bool:
        return launches <= self.prices.launches and self.prices.of(launches, runs) <= self.prices.seconds

    def _seeds(self, samples: np.ndarray) -> np.ndarray:
        """Return positions of the launches that would reduce the variance most, each alone."""
        cells = self.sampling.window.cells
        rest = np.flatnonzero(~self.taken)
        rest = rest[np.argsort(cells[rest], kind="stable")]
        _, starts, counts = np.unique(cells[rest], return_index=True, return_counts=True)
        places = ((np.arange(TRIED) + 0.5) / TRIED * counts[:, None]).astype(int) + starts[:, None]
        tried = rest[np.unique(places)] if len(rest) else rest
        gains = np.array([self.sampling.gain(samples, np.array([row])) for row in tried])
        best = np.argsort(-gains, kind="stable")[:SEEDS]
        return tried[best[gains[best] > 0]]

    def _wider(self, samples: np.ndarray, seeds: np.ndarray) -> Iterator[tuple[float, list[Run]]]:
        """Yield the gain per second, and the runs, if the first run takes one more number of each configuration."""
        first, *others = self.runs
        for number in np.unique(self.sampling.of_configuration[seeds]):
            run = Run(first.numbers | {int(number)})
            takes = self.sampling.of_configuration == number
            count = int(takes.sum())
            if self._fits(self.launches + count, len(self.runs)):
                gain = self.sampling.gain(samples, np.flatnonzero(takes & ~self.taken))
                yield gain / (count * self.launch_s), [run, *others]

    def _further(self, samples: np.ndarray, seeds: np.ndarray) -> Iterator[tuple[float, list[Run]]]:
        """Yield the gain per second, and the runs, with one more run of growing size.

        The run grows until it reaches the wanted error, or until its gain per second falls clearly.
        """
        sampling, best = self.sampling, 0.0
        pairs = {(sampling.kernels[row], int(sampling.of_kernel[row])) for row in seeds}
        kernels, numbers, gain, count = frozenset[str](), frozenset[int](), 0.0, 0
        before = float(self.variance().sum())
        while True:
            found = None
            for kernel, number in sorted(pairs):
                run = Run(numbers | {number}, kernels | {kernel})
                takes = sampling.takes(run)
                new = int(takes.sum())
                if new == count or not self._fits(self.launches + new, len(self.runs) + 1):
                    continue
                more = sampling.gain(samples, np.flatnonzero(takes & ~self.taken))
                rate = (more - gain) / (new - count)
                if found is None or rate > found[0]:
                    found = rate, run, more, new
            if found is None or found[0] <= 0:
                return
            _, run, gain, count = found
            kernels, numbers = run.kernels or frozenset(), run.numbers
            rate = gain / (self.prices.start_s + count * self.launch_s)
            yield rate, [*self.runs, run]
            best = max(best, rate)
            left = sampling.variance(sampling.samples(self.taken | sampling.takes(run)))
            if relative_half_width(left) <= self.wanted or rate < 0.7 * best or before <= gain:
                return


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
    options: PlanOptions, name: str, launches: pd.DataFrame, census: pd.DataFrame, prices: RunPrices, one_run: bool
) -> Selection:
    """Select one launch per configuration, and more launches until the expected error is as small as requested.

    Args:
        options, name, launches, census: as for select_configured.
        prices: costs of a run and of a launch, and their limits.
        one_run: whether all launches have to be profiled in a single run.
    """
    wider = not options["kernel_name"]
    found = choose_launches(launches, ncu.parse_percent(options["error"]), prices, not one_run, wider)
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


def _of_each_configuration(numbers: Collection[int], kernels: Collection[str] = ()) -> list[str]:
    """Return ncu's options that select launches by their numbers within every configuration, of all or some kernels."""
    named = ["--kernel-name-base", "mangled", "--kernel-id", f":::^({_any_of(numbers)})$"]
    return ["--filter-mode", "per-launch-config", *(_kernel_id(kernels, numbers) if kernels else named)]


def narrow_to_kernels(words: Sequence[str], kernels: Collection[str]) -> list[str]:
    """Return ncu's options that select, of the launches that a first run takes, those of some kernels.

    words: options of `select_sample` for the first run; kernels: mangled names.

    >>> narrow_to_kernels(_of_each_configuration({1, 3}), ["a"])[-1]
    '::regex:^(a)$:^(1|3)$'
    """
    if "--kernel-id" not in words:
        return _of_each_configuration({1}, kernels)
    numbers = words[words.index("--kernel-id") + 1].rpartition("^(")[2].removesuffix(")$").split("|")
    return _of_each_configuration({int(number) for number in numbers}, kernels)


def _any_of(numbers: Collection[int]) -> str:
    return "|".join(str(number) for number in sorted(numbers))


def _profiled_by(names: Collection[str], numbers: Collection[int], last: Mapping[str, int]) -> int:
    """Return how many launches ncu profiles of these kernels at these invocations; last: launches of each kernel.

    >>> _profiled_by({"a", "b"}, {1, 3}, {"a": 5, "b": 2})
    3
    """
    return sum(number <= last[name] for name in names for number in numbers)


def _kernel_id(names: Collection[str], numbers: Collection[int]) -> list[str]:
    """Return ncu's options that select kernels of these names at these invocations."""
    which = "|".join(re.escape(name) for name in sorted(names))
    return ["--kernel-name-base", "mangled", "--kernel-id", f"::regex:^({which})$:^({_any_of(numbers)})$"]


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
