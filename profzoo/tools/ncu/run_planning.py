"""Estimates an ncu run before it starts, and chooses its replay and the configurations that a budget pays for."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from profzoo.cell.job_types import KnownOperations, Plan, PlanOptions, ReplacedSample, Sidecar
from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json, write_json
from profzoo.machine import profiled_forks
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import known_operations, launch_selection, raw_page, single_passes
from profzoo.tools.ncu.census import read_untold_reason
from profzoo.tools.ncu.costs import PARTS, PROBED, Cost, Costs, estimate_cost, estimate_price, load_costs, read_history
from profzoo.tools.ncu.export_schema import is_nsys_census, read_census
from profzoo.tools.ncu.launch_selection import RunPrices, Selection

# Reads the cost of a launch under a section set from a probe: a few other kernels that ncu profiled on this GPU.

PASSES = "profiler__replayer_passes"


def read_probe_cost(page: str | Path, sidecar: str | Path, gpu: str | None) -> Cost | None:
    """Return the cost measured by a probe, from its raw page and sidecar; None if it ran on another GPU.

    Raises:
        DataError: the page has no launch, or does not say how many passes it took.
    """
    said = read_json(sidecar, {"launch_s": fact.NUMBER})
    if said.get("gpu") != gpu:
        return None
    raw, _ = raw_page.read_raw(page)
    if PASSES not in raw or not raw[PASSES].str.fullmatch("[0-9]+").all():
        raise DataError(f"{page} does not say in how many passes launches were profiled: {raw_page.ODD}")
    return Cost(int(raw[PASSES].astype(int).max()), float(said["launch_s"]), PROBED)


# Estimates are good to a quarter, so that less of a difference is none.
CLEARLY_CHEAPER = 0.75
# A sample leaves something open, so that it has to save more than that.
LEAST_SAVED_SHARE = 0.1
# The error for which sampling.MOST is meant.
REFERENCE_ERROR = 0.02


@dataclass(frozen=True)
class _Estimate:
    """Estimates the duration of one process under ncu.

    start_s: without any launch profiled; window: launches in all; price: of one that is; passed_over_s: of one that is
    not; application_pass_s: of one in each pass of application replay.
    """

    start_s: float
    window: int
    price: Cost
    passed_over_s: float
    application_pass_s: float

    def seconds(self, replay: str, launches: int, runs: int = 1) -> float:
        """With so many launches profiled, in so many runs. Application replay runs the whole process once a pass.

        >>> estimate = _Estimate(4.0, 110, Cost(passes=6, seconds=0.5), 0.01, 0.1)
        >>> estimate.seconds("kernel", 10), estimate.seconds("application", 10)
        (10.0, 36.0)
        """
        process = runs * (self.start_s + self.window * self.passed_over_s) - launches * self.passed_over_s
        if replay == "kernel":
            return process + launches * self.price.seconds
        return self.price.passes * (process + launches * self.application_pass_s)

    def cheaper(self, launches: int) -> str:
        """Choose the replay mode for so many launches: kernel replay, unless application replay is clearly cheaper."""
        kernel, application = self.seconds("kernel", launches), self.seconds("application", launches)
        return "application" if application < CLEARLY_CHEAPER * kernel else "kernel"

    def prices(self, replay: str, launches: int, budget_s: float) -> RunPrices:
        """What runs and launches take; launches, budget_s: how many, and how long, at most."""
        return RunPrices(self.seconds(replay, 0), self.each(replay), launches, budget_s)

    def affordable(self, replay: str, budget_s: float) -> int:
        """Return how many launches the budget pays for; less than one if it does not pay for any."""
        paid = self.seconds(replay, 0)
        return int((budget_s - paid) / self.each(replay))

    def each(self, replay: str) -> float:
        """Return the seconds that one more launch takes."""
        return max(self.seconds(replay, 1) - self.seconds(replay, 0), 1e-6)


@dataclass(frozen=True)
class Told:
    """What is known of a cell's operations before ncu counts them.

    precision: of the cell. known: operations that earlier reports have counted; None for none.
    """

    precision: str
    known: KnownOperations | None = None


def plan_collection(
    options: PlanOptions,
    name: str,
    census: pd.DataFrame,
    start_s: float,
    price: Cost,
    costs: Costs,
    told: Told | None = None,
) -> Plan:
    """Plan how to collect a section set of a cell, and estimate how long that takes.

    Args:
        options: the configuration's `ncu`, and `one_run`, where ncu may run only once; name: of the section set.
        census: every launch of the cell's window, in order; start_s: of a process under ncu, without any profiled.
        price: of one launch of the set; costs: the measured costs.
        told: what is known of the cell's operations; without it, they are not counted apart.

    Returns: replay mode, launches, runs, configurations, share of GPU time, expected error of totals, passes, start-up,
    seconds a launch, estimate, budget, and `options`, the words of ncu that all this comes to; `instead_of`, the sample
    in whose place all launches are profiled, where that takes no longer.

    A budget that does not pay for everything is spent on what takes longest. What a rerun costs is paid whatever is
    chosen, so that is done launch by launch, in kernel replay, unless the configuration asks for another.

    Raises:
        DataError: the budget does not pay for a single launch, or no launch is of the kernels asked for.
    """
    launches = launch_selection.select_candidates(options, name, census)
    whole = launch_selection.select_configured(options, name, launches, census)
    estimate = _Estimate(start_s, len(census), price, costs["passed_over_s"], costs["application_pass_s"])
    replay, chosen, instead = _chosen(options, name, estimate, launches, whole, census)
    took = estimate.seconds(replay, chosen.launches, 1 + len(chosen.further))
    apart = _in_single_passes(options, name, estimate, census, costs, told) if told else None
    exact = price.passes > 1 and single_passes.counts_bytes(options["sets"][name].get("metrics", []))
    cheaper = apart and (apart.seconds < (1 - LEAST_SAVED_SHARE) * took or apart.chosen.share > chosen.share)
    if told and apart and (exact or cheaper):
        planned = _described(options, name, "kernel", apart.chosen, whole, apart.price, start_s, apart.seconds)
        planned = {**planned, "joined": len(apart.chosen.further)}
        return {**planned, "known": told.known} if told.known else planned
    planned = _described(options, name, replay, chosen, whole, price, start_s, took)
    return {**planned, "instead_of": instead} if instead else planned


def _described(
    options: PlanOptions,
    name: str,
    replay: str,
    chosen: Selection,
    whole: Selection,
    price: Cost,
    start_s: float,
    took_s: float,
) -> Plan:
    """Return what a plan says of every choice; took_s: estimate of all runs."""
    return {
        "set": name,
        "replay": replay,
        "launches": chosen.launches,
        "runs": 1 + len(chosen.further),
        "configurations": chosen.configurations,
        "configurations_of_window": whole.configurations,
        "share": round(chosen.share, 6),
        "error": None if chosen.error is None else round(chosen.error, 5),
        "passes": price.passes,
        "basis": price.basis,
        "start_s": round(start_s, 3),
        "launch_s": round(price.seconds, 5),
        "estimate_s": round(took_s, 3),
        "budget": options["budget"],
        "options": _words(replay, chosen),
    }


@dataclass(frozen=True)
class _Apart:
    """A choice of launches that runs of one pass each profile; price: of the mean launch; seconds: of all runs."""

    chosen: Selection
    price: Cost
    seconds: float


def _in_single_passes(
    options: PlanOptions, name: str, estimate: _Estimate, census: pd.DataFrame, costs: Costs, told: Told
) -> _Apart | None:
    """Choose launches so that one run counts all but operations, and further runs count those that nobody knows.

    Returns: None where that is impossible: the set counts more than metrics, launches are not sampled, another replay
    is asked for, or the budget does not suffice.
    """
    own = options["sets"][name]
    split = single_passes.split_metrics(own.get("metrics", []), told.precision)
    sampled = ncu.launch_selection(options, name) == ncu.SAMPLED and not options["kernel_name"]
    replayed = ncu.replay_mode(options, name) in ("auto", "kernel")
    if {"set", "sections"} & set(own) or not split or not sampled or not replayed or options.get("one_run"):
        return None
    first = estimate_cost({"metrics": [*split.first]}, costs)
    if first.passes > 1:
        return None
    # Earlier runs may have shown that launches here cost more than was shipped; that holds for all metrics alike.
    dearer = estimate.price.seconds / estimate_cost(own, costs).seconds
    limit = float("inf") if options["budget"] is None else ncu.parse_budget(options["budget"])
    # A launch takes less than half as long as with all passes.
    most = 2 * most_launches(len(census[raw_page.CONFIGURATION].drop_duplicates()), _error(options))
    prices = replace(estimate, price=first).prices("kernel", most, limit)
    base = launch_selection.select_sample(options, name, census, census, prices, one_run=True)
    known = {*known_operations.known_kernels(census, told.known)} if told.known else set()
    unknown = sorted({*census["mangled"]} - known)
    runs: list[tuple[list[str], float]] = [([*base.options, *_asked(split.first)], first.seconds * dearer)]
    for metrics in (split.arithmetic, split.products) if unknown else ():
        if metrics:
            same = launch_selection.narrow_to_kernels(base.options, unknown) if known else base.options
            runs.append(([*same, *_asked(metrics)], costs["alone_s"] * dearer))
    launches = [len(launch_selection.profiled_launches(census, words)) for words, _ in runs]
    seconds = sum(replace(estimate, price=Cost(1, each)).seconds("kernel", count, 1)
                  for count, (_, each) in zip(launches, runs, strict=True))  # fmt: skip
    if seconds > limit:
        return None
    mean = sum(count * each for count, (_, each) in zip(launches, runs, strict=True)) / launches[0]
    chosen = replace(base, options=runs[0][0], further=[words for words, _ in runs[1:]])
    return _Apart(chosen, Cost(1, mean, estimate.price.basis), seconds)


def _asked(metrics: Sequence[str]) -> list[str]:
    return ["--metrics", ",".join([*metrics, *ncu.SHARED_MEMORY])]


def _error(options: PlanOptions) -> float:
    return ncu.parse_percent(options["error"])


def _chosen(
    options: PlanOptions, name: str, estimate: _Estimate, launches: pd.DataFrame, whole: Selection, census: pd.DataFrame
) -> tuple[str, Selection, ReplacedSample | None]:
    """Replay mode and launches, and what of a sample all launches are taken instead of; launches, whole: those that the
    set may take, and what is asked for of them."""
    asked, budget = ncu.replay_mode(options, name), options["budget"]
    replay = estimate.cheaper(whole.launches) if asked == "auto" else asked
    limit = float("inf") if budget is None else ncu.parse_budget(budget)
    if estimate.seconds(replay, whole.launches) > limit:
        replay = "kernel" if asked == "auto" else replay
        return (
            replay,
            launch_selection.select_within_budget(
                launches, census, _affordable(estimate, replay, limit, options, name)
            ),
            None,
        )
    if ncu.launch_selection(options, name) != ncu.SAMPLED:
        return replay, whole, None
    prices = estimate.prices(replay, most_launches(whole.launches, _error(options)), limit)
    sample = launch_selection.select_sample(options, name, launches, census, prices, options.get("one_run", False))
    runs = 1 + len(sample.further)
    every = estimate.cheaper(len(launches)) if asked == "auto" else asked
    took, every_s = estimate.seconds(replay, sample.launches, runs), estimate.seconds(every, len(launches))
    if (sample.launches == len(launches) and runs == 1) or took < (1 - LEAST_SAVED_SHARE) * every_s or every_s > limit:
        return replay, sample, None
    # Starting ncu again may cost as much as launches that say nothing new.
    instead = ReplacedSample(
        launches=sample.launches, runs=runs, error=round(sample.error or 0.0, 5), estimate_s=round(took, 3)
    )
    return every, launch_selection.select_all(options, launches, census), instead


def _words(replay: str, chosen: Selection) -> list[str]:
    """Return ncu's options for the chosen launches, as `command.run_options` and `wrap_command` take them."""
    shared = ["--replay-mode", replay]
    if not chosen.further:
        return [*shared, *chosen.options]
    further = [word for own in chosen.further for word in (ncu.THEN, *own)]
    return [*chosen.options, *further, ncu.IN_ALL, *shared]


def most_launches(configurations: int, error: float) -> int:
    """Return the largest number of launches to profile for a target error.

    >>> most_launches(100, 0.02), most_launches(100, 0.05), most_launches(100, 0.01), most_launches(10, 0.02)
    (150, 150, 300, 50)
    """
    wide = max(configurations * launch_selection.MOST, configurations + launch_selection.FEW)
    return int(wide * max(REFERENCE_ERROR / error, 1.0))


def _affordable(estimate: _Estimate, replay: str, limit: float, options: PlanOptions, name: str) -> int:
    """Return how many launches the budget pays for, or raise DataError if none; name: of the section set."""
    launches = estimate.affordable(replay, limit)
    if launches < 1:
        paid, each = estimate.seconds(replay, 0), estimate.each(replay)
        raise DataError(
            f"ncu.budget = {options['budget']} does not pay for one launch of set {name}: starting takes {paid:.0f} s "
            f"and a launch {each:.2f} s; give {paid + each + 1:.0f}s or more"
        )
    return launches


def describe_plan(planned: Plan) -> str:
    """Describe the plan in one line."""
    of = planned["configurations_of_window"]
    what = f"{planned['launches']} launches, {planned['configurations']} of {of} configurations"
    passes = "1 pass" if planned["passes"] == 1 else f"{planned['passes']} passes"
    limit = "at most about" if planned["basis"] == PARTS else "about"
    runs = f" in {planned['runs']} runs" if planned["runs"] > 1 else ""
    # Times are all that is known before anything is counted.
    error = (
        f", totals within {planned['error']:.1%} if launches of similar times do similar work"
        if planned["error"]
        else ""
    )
    return (
        f"ncu {planned['set']}: {what}, {planned['share']:.1%} of GPU time{error}, {passes}, {planned['replay']} "
        f"replay{runs}: {limit} {planned['estimate_s']:.0f} s{_instead(planned)}{_known(planned)}"
    )


def _known(planned: Plan) -> str:
    """Say of how many configurations earlier reports tell the operations."""
    if not (known := planned.get("known")):
        return ""
    tables = len(known["sources"])
    of = known["sources"][0] if tables == 1 else f"{tables} earlier tables"
    return f", operations of {len(known['rows'])} configurations from {of}"


def _instead(planned: Plan) -> str:
    """Explain why all launches are profiled although a sample was requested."""
    if not (sample := planned.get("instead_of")):
        return ""
    runs = "one run" if sample["runs"] == 1 else f"{sample['runs']} runs"
    return f", all launches in one run, as {sample['launches']} in {runs} would take {sample['estimate_s']:.0f} s"


def _start_s(wall_s: float, launches: int, of_nsys: bool, forked: bool, costs: Costs) -> float:
    """Estimate the seconds of a process under ncu without profiled launches, from the wall time of the census run.

    >>> costs = {"sets": {"launch": {"seconds": 0.004}}, "nsys_more_s": 4.4, "import_s": 4.7, "attach_s": 2.3}
    >>> _start_s(7.0, 500, False, False, costs), _start_s(10.0, 500, True, False, costs)
    (5.0, 5.6)
    >>> _start_s(13.0, 500, True, True, costs), _start_s(7.0, 500, False, True, costs)
    (3.9, 2.3)
    """
    beside = costs["nsys_more_s"] if of_nsys else launches * costs["sets"][ncu.CENSUS]["seconds"]
    alone = max(wall_s - beside, 0.0)
    return max(round(alone - costs["import_s"], 3), costs["attach_s"]) if forked else alone


def _read_told(options: PlanOptions, name: str, results: Path, facts: Sidecar, census: pd.DataFrame) -> Told | None:
    """Read what earlier reports under results/ tell of the operations that a section set counts.

    facts: of the census' sidecar. Returns: None for a cell of unknown precision, without a GPU, or where operations are
    to be counted with all else.
    """
    precision = facts.get("cell", {}).get("precision")
    counted = [one for one in options["sets"][name].get("metrics", []) if known_operations.is_operation(one)]
    if options.get("operations") != ncu.KNOWN or not counted or not precision or not facts.get("gpu"):
        return None
    known = known_operations.find_known(census, known_operations.read_counted(results, facts), counted)
    return Told(precision, known if known["rows"] else None)


def main(
    options: PlanOptions,
    name: str,
    census: str,
    sidecar: str,
    path: str,
    say: Callable[[str], object],
    probe: Sequence[str] = (),
    untold_sidecar: str | None = None,
) -> None:
    """Read the census of a cell, its sidecar, and what sets have cost so far; write the plan of one, and say it.

    options: as of plan_collection. probe: page and sidecar of one, of a set of which nobody knows what it costs.
    untold_sidecar: file that says why the census is ncu's own, where the trace of nsys was to tell the launches.
    """
    costs, facts = load_costs(), read_facts(sidecar, {"wall_s": fact.POSITIVE})
    shipped = estimate_cost(options["sets"][name], costs)
    # Beside this cell's folder are those of the others.
    known = read_history(Path(census).parents[1], facts["gpu"]) if facts.get("gpu") else []
    probed = read_probe_cost(probe[0], probe[1], facts.get("gpu")) if probe else None
    price = estimate_price(options["sets"][name], shipped, known, probed)
    every = read_census(census)
    # ncu attaches to forks where this run has a process for them.
    served = profiled_forks.variable_of(ncu.PROGRAM) in os.environ
    forked = served and ncu.launch_selection(options, name) == ncu.SAMPLED
    start_s = _start_s(facts["wall_s"], len(every), is_nsys_census(census), forked, costs)
    told = _read_told(options, name, Path(census).parents[1], facts, every)
    planned = plan_collection(options, name, every, start_s, price, costs, told)
    planned |= {"shipped_s": shipped.seconds, "outcomes": len(known), "census": Path(census).name}
    if untold_sidecar and (untold := read_untold_reason(untold_sidecar)):
        planned |= {"census_note": f"ncu recorded the launches itself, as the trace of nsys cannot: {untold}"}
    say(describe_plan(planned))
    write_json(planned, path)
