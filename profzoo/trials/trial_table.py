"""Make the table of trials, a row per cell and settings: expected gain, measured gain, hit or miss."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import numpy as np
import pandas as pd

from profzoo import tools
from profzoo.cell import schema, settings
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.process_count import count_samples
from profzoo.cell.sidecar_files import read_facts
from profzoo.compare import numeric_checks, numerics
from profzoo.errors import ConfigError, DataError, suggest_nearest
from profzoo.experiments import trial_runner, trial_search
from profzoo.experiments.trial_runner import change_words
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.columns import COUNT, FLAG, NINETEEN_OF_TWENTY, NUMBER, TEXT, Column, select, with_interval
from profzoo.io.columns import GPU as COLUMNS_GPU
from profzoo.io.common_columns import shared
from profzoo.io.scripts import read_json, write_csv, write_json
from profzoo.io.text_files import SAME
from profzoo.json_types import GivenSettings
from profzoo.plans import recipes
from profzoo.plans.plan import IN_FORCE
from profzoo.plans.plan_table import PLANS_TABLE
from profzoo.statistics import process_repeats, sequential, speedup
from profzoo.tables.cell_tables import cell_of
from profzoo.tools.sample import gpu_state
from profzoo.tools.time.tables import REPEATED
from profzoo.verdicts.causes import cpu_verdicts
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.feasibility import FAILED_EARLIER
from profzoo.verdicts.rules.rule_types import Advice, KnownSettings

if TYPE_CHECKING:
    from profzoo.cell.config_types import Config
    from profzoo.cell.job_types import ProcessFacts, Sidecar


# Choose the best of the settings that were tried on a cell.


def best_row(rows: pd.DataFrame) -> dict[str, Any] | None:
    """Return the chosen trial of a cell, else the fastest one that is clearly faster and never failed, else None.

    Settings with which the cell computes something else are not called faster, and so are never returned.

    rows: the cell's rows of the table of trials.
    """
    sure = rows[(rows["verdict"] == speedup.FASTER) & (rows["why"].fillna("") == "")]
    found = sure.sort_values(["chosen", "gain"], ascending=False).to_dict("records")
    return {str(name): value for name, value in found[0].items()} if found else None


# List the settings to try on a cell: a panel of variants, and the settings that verdicts advise.

SettingWords = list[str]


class ExpectedGain(TypedDict):
    """An expected gain with the ends of its interval (None without one), and the verdicts that could advise it.

    advised: whether a verdict on the cell advises the settings. rank: place among the plans of the cell. words: the
    settings. not_possible: why the cell cannot have them, by the table of plans. failed: why they failed in earlier
    trials.
    """

    gain: float | None
    low: float | None
    high: float | None
    verdict: str
    advised: bool
    rank: NotRequired[int]
    words: NotRequired[SettingWords]
    not_possible: NotRequired[str]
    failed: NotRequired[str]


# This name in the panel is not a variant; it doubles the batch.
DOUBLE_BATCH = "double_batch"
# The name of a candidate's settings as a temporary variant.
TRIAL_VARIANT = "tried"
# A device of cells, which by default is a GPU only where there is one.
GPU = "cuda"


def candidate_words(cell_model: str, phase: str, config: "Config") -> tuple[dict[str, SettingWords], dict[str, str]]:
    """Return each candidate's setting words by name, and why other candidates cannot be tried, by name.

    Candidates that would not change the cell are in neither.

    Raises:
        ConfigError: the panel names an unknown variant.
    """
    resolved = settings.resolve_cell(cell_model, phase, tools.BASELINE, config)
    base = settings.setting_words(resolved)
    found: dict[str, SettingWords] = {}
    refused: dict[str, str] = {}
    for name, given in _name_candidates(config, resolved).items():
        model, own = settings.split_variant(cell_model)
        # By a name of its own, as that of joined variants would be taken apart.
        changed = {**settings.combine_changes(settings.split_names(own), config["variants"]), **given}
        variants = {**config["variants"], TRIAL_VARIANT: changed}
        try:
            cell = settings.resolve_cell(
                f"{model}@{TRIAL_VARIANT}", phase, tools.BASELINE, {**config, "variants": variants}
            )
        except ConfigError as error:
            refused[name] = str(error).removeprefix(f"variants.{TRIAL_VARIANT}.")
            continue
        known = schema.cell_properties()
        gone = [key for key in settings.LATER if key in resolved and key not in cell]
        words = [word for word in settings.setting_words(cell) if word not in base]
        if words := [*words, *(f"{key}={settings.setting_word(known[key]['default'])}" for key in gone)]:
            found[name] = words
    return found, refused


def _name_candidates(config: "Config", cell: CellSettings) -> dict[str, GivenSettings]:
    """Return the settings of every candidate by name; advice that no variant follows is named by its words."""
    known = _panel_settings(config, cell["batch"])
    rules = verdict_rules.load_rules()["rules"]
    of_cpus = [rule for rule in rules if rule["of"] == cpu_verdicts.CPU]
    # The device of the cell need not be known here, so settings that are advised only on CPUs come last.
    rules = [rule for rule in rules if rule not in of_cpus] + (of_cpus if cell["device"] != GPU else [])
    advice = [_advice_words(one, cell) for rule in rules for one in rule["advice"]]
    own = {
        words: settings.parse_words(words.split()) for words in advice if words and _find_name(words, known) == words
    }
    return {**known, **own}


def _panel_settings(config: "Config", batch: int | None) -> dict[str, GivenSettings]:
    """Return the settings of each name of the panel; batch: items per batch, or None if unknown (then no DOUBLE)."""
    known = {**config["variants"], DOUBLE_BATCH: {"batch": 2 * batch} if batch else {}}
    for name in config["trials"]["panel"]:
        if unknown := settings.find_unknown(name, known):
            raise ConfigError(f"trials.panel: '{unknown}' is not a variant: {suggest_nearest(unknown, known)}")
    return {name: settings.combine_changes(settings.split_names(name), known) for name in config["trials"]["panel"]}


def _advice_words(advice: Advice, cell: CellSettings) -> str:
    """Return the setting words of an advice for a cell; empty if it has none."""
    if doubled := advice.get("doubled"):
        own: KnownSettings = cell
        return f"{doubled}={2 * own[doubled]}"
    return str(advice.get("settings") or "")


def name_candidate(words: str, config: "Config", batch: int | None = None) -> str:
    """Return the name of the panel's candidate with these settings, else the words themselves.

    batch: data samples per batch of the cell, if known.
    """
    return _find_name(words, _panel_settings(config, batch))


def _find_name(words: str, panel: Mapping[str, GivenSettings]) -> str:
    wanted = _as_texts(settings.parse_words(words.split()))
    return next((name for name, given in panel.items() if given and _as_texts(given) == wanted), words)


def _as_texts(given: GivenSettings) -> dict[str, str]:
    """Return settings as texts, because words and YAML have different types."""
    return {key: str(value).lower() for key, value in settings.flatten(given).items()}


def expected_gains(
    plans: pd.DataFrame, config: "Config", batches: Mapping[str, int], failed: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, ExpectedGain]]:
    """Return what is expected of each plan, advised or not, by cell (`lstm train`) and name.

    Settings that are not possible have no gain, but the reason; those that the cell runs with already are left out.

    plans: the table of plans, perhaps of another machine. batches: data samples per batch, by cell. failed: why
    settings failed in earlier trials, by cell and words.
    """
    found: dict[str, dict[str, ExpectedGain]] = {}
    impossible = plans["not_possible"].fillna("").ne("") & plans["not_possible"].ne(IN_FORCE)
    for row in plans[(plans["gain"] > 0) | impossible].sort_values("rank").itertuples():
        low, high = (float(end) if end > 0 else None for end in (row.gain_low, row.gain_high))
        own: ExpectedGain = {
            "gain": float(row.gain) if row.gain > 0 else None,
            "low": low,
            "high": high,
            "verdict": str(row.verdicts),
            "advised": bool(row.advised),
            "rank": int(row.rank),
            "words": row.settings.split(),
        }
        if row.not_possible:
            own["not_possible"] = row.not_possible
        cell = f"{row.model} {row.phase}"
        known = failed.get(cell, {})
        if why := next((why for words, why in known.items() if {*words.split()} <= {*row.settings.split()}), ""):
            own |= {"gain": None, "low": None, "high": None, "not_possible": FAILED_EARLIER.format(why)}
        found.setdefault(cell, {}).setdefault(name_candidate(row.settings, config, batches.get(cell)), own)
    for cell, reasons in failed.items():
        for words, why in reasons.items():
            known_as = name_candidate(words, config, batches.get(cell))
            told = found.setdefault(cell, {}).setdefault(
                known_as, {"gain": None, "low": None, "high": None, "verdict": "", "advised": False}
            )
            told |= {"words": words.split(), "not_possible": FAILED_EARLIER.format(why), "failed": why}
    return found


# Columns that are there only where any setting's clock differed from that of the unchanged cell; where it is known.
CLOCKS, DEVICE, RECIPE = "clocks", "device", "recipe"
TRIALS_TABLE = reading.Table(
    columns={
        **shared("model", "phase"),
        "settings": Column(TEXT, "Name of the settings that were tried."),
        "words": Column(TEXT, "The settings as arguments of `python -m models.run`."),
        "advised_by": Column(TEXT, "Verdict whose advice the settings are."),
        **with_interval("expected", Column(NUMBER.or_missing, "Expected speedup.", "ratio")),
        "base_ns": Column(
            NUMBER.or_missing, "Median step of the cell as it is, in the rounds in which the settings ran as well.",
            "ns", "time", COLUMNS_GPU),
        "ns": Column(NUMBER.or_missing, "Median step with the settings.", "ns", "time", COLUMNS_GPU),
        **with_interval("gain", Column(
            NUMBER.or_missing, "Measured speedup: time per sample of the cell as it is, over that with the settings.",
            "ratio", "time", COLUMNS_GPU, NINETEEN_OF_TWENTY)),
        "processes": Column(COUNT, "Processes that ran with the settings.", "count"),
        "verdict": Column(
            TEXT, "`faster` (with the settings), `slower`, `equivalent` or `undecided`; `different` if it is faster "
            "and computes something else; `failed`, `refused` or `not tried`."),
        "outcome": Column(
            TEXT, "`hit` or `miss` of what was expected, `slowed down` where advice did; empty where nothing was "
            "expected."),
        "advised": Column(FLAG, "Whether a verdict advised the settings."),
        "chosen": Column(FLAG, "Whether the settings are the best ones that were found."),
        "loss_difference": Column(
            NUMBER.or_missing, "Difference of the last loss, relative to that of the cell as it is.", "ratio", "time"),
        "output_difference": Column(
            NUMBER.or_missing, "Largest difference of the last outputs, relative to the largest of the cell as it is.",
            "ratio", "time"),
        **select(
            numerics.COLUMNS, "numerics", "numerics_by", "numerics_difference", "numerics_tolerance",
            "numerics_why", "seed_spread", "work"),
        "why": Column(
            TEXT, "Why the settings failed, with the line of the program and which of several settings failed by "
            "themselves; why they were refused, were not tried, or what a decision lacks."),
    },
    optional={
        **shared("device"),
        "recipe": Column(
            TEXT, "The lines of PyTorch that do the same in a program of your own, behind their places in a script."),
        "clocks": Column(
            TEXT, "Mean SM clocks of the cell as it is and with the settings, and their limits, if the clocks differ."),
    },
    key=["model", "phase", "settings"],
)  # fmt: skip
COLUMNS = [*TRIALS_TABLE.columns]
FAILED, REFUSED, LEFT_OUT = "failed", "refused", "not tried"
HIT, MISS, SLOWED = "hit", "miss", "slowed down"
# An expected gain is a hit within this relative distance of the measured gain, or within the interval of that.
NEAR = 0.2
NEEDS: fact.Needs = {
    "cell": {},
    "trials": {"candidates": {}, "refused": {}},
    "processes": fact.PROCESSES,
    "failed": {},
    "words": {},
    "tried": fact.TEXTS,
    "chosen": fact.TEXT,
    "ended": fact.TEXT,
    "device?": fact.TEXT,
}
Cell = tuple[Mapping[str, str], pd.DataFrame, "Sidecar"]


@dataclass(frozen=True)
class _Trial:
    """Settings that were tried on a cell, or not; times in ns per data sample; what was not measured is NaN.

    verdict: FAILED, REFUSED or LEFT_OUT of settings that were not measured, or what rounds decided; ratio: the
    comparison from two pairs on, if it is judged together with all others; numbers: the columns that say whether the
    settings leave what is computed as it is. clocks: how the GPU's clock differed from that of the unchanged cell.
    """

    settings: str
    words: str
    why: str = ""
    processes: int = 0
    chosen: bool = False
    base_ns: float = np.nan
    ns: float = np.nan
    gain: float = np.nan
    gain_low: float = np.nan
    gain_high: float = np.nan
    loss_difference: float = np.nan
    output_difference: float = np.nan
    verdict: str = speedup.UNDECIDED
    ratio: speedup.Ratio | None = None
    numbers: Mapping[str, Any] = field(default_factory=lambda: numerics.UNKNOWN)
    clocks: str = ""
    recipe: str = ""


@dataclass(frozen=True)
class _Row:
    """A trial of a cell beside what was expected of it."""

    cell: Mapping[str, str]
    trial: _Trial
    expected: "ExpectedGain"

    def columns(self, outcomes: Iterator[str]) -> dict[str, Any]:
        """Return the row of the table; outcomes: of the comparisons, in their order, of which this takes its own."""
        own = {field.name: getattr(self.trial, field.name) for field in fields(self.trial)}
        return {
            **self.cell,
            **own,
            **self.trial.numbers,
            "expected": self.expected["gain"],
            "expected_low": self.expected["low"],
            "expected_high": self.expected["high"],
            "advised": self.expected["advised"],
            "advised_by": self.expected["verdict"],
            "verdict": numerics.temper_outcome(
                next(outcomes) if self.trial.ratio else self.trial.verdict, self.trial.numbers["numerics"]
            ),
        }


def tabulate_trials(
    cells: Iterable[Cell], expected: "Mapping[str, Mapping[str, ExpectedGain]]", margin: float
) -> pd.DataFrame:
    """Return the table (COLUMNS): each cell's settings from the largest gain on, then failed and untried ones.

    Args:
        cells: for each cell, the cell, steps of all processes, and their sidecar.
        expected: expected gains by cell and name of the settings.
        margin: largest relative difference that counts as equivalent.

    `gain` is the time per data sample of the unchanged cell over the time with the settings, from pairs of processes of
    the same round, with its 95 % confidence interval. `verdict` is the outcome as in a comparison. `outcome` compares
    the gain with the expected one, even if no verdict advises the settings (`advised`). `loss_difference` and
    `output_difference` are the differences of the last loss and of the last outputs, relative to the unchanged cell's.

    Raises:
        DataError: a process ran with other settings than those of its side.
    """
    rows: list[_Row] = []
    for cell, steps, facts in cells:
        _check_settings(f"{cell['model']}/{cell['phase']}.trials.csv", facts)
        own = _measured_rows(steps, facts, margin)
        known = expected.get(f"{cell['model']} {cell['phase']}", {})
        # Of a script, its own facts are beside those of its first process.
        made, device = facts.get("script", {}).get("made", ()), facts.get("device_type", recipes.DEVICE)
        for row in [*own, *_unmeasured_rows(facts, own)]:
            row = replace(row, recipe=recipes.format_recipes(row.words, made, device))
            rows.append(_Row({**cell, DEVICE: facts.get("device", "")}, row, _expected_of(row, known)))
    said = iter(speedup.decide_outcomes([row.trial.ratio for row in rows if row.trial.ratio]))
    names = [*COLUMNS, RECIPE, *([CLOCKS] if any(row.trial.clocks for row in rows) else [])]
    names += [DEVICE] if any(row.cell[DEVICE] for row in rows) else []
    frame = pd.DataFrame([row.columns(said) for row in rows], columns=names)
    ends = ["expected", "expected_low", "expected_high"]
    frame[ends] = frame[ends].astype("float64")
    frame["outcome"] = [judge_outcome(row) for row in frame.to_dict("records")]
    return frame


def _check_settings(file: str, facts: "Sidecar") -> None:
    """Check that each process resolved the settings of its side, and one of the unchanged cell those of the cell."""
    for own in facts["processes"]:
        if "ran_with" in own:
            asked = change_words(settings.setting_words(facts["cell"]), [_words(own["side"], facts)])
            if wrong := settings.describe_other_settings(asked, own["ran_with"]):
                side = f"with `{own['side']}`" if own["side"] else "as it is"
                raise DataError(f"{file}: a process of the cell {side} ran with {wrong}: {reading.AGAIN}{SAME}")


def _measured_rows(steps: pd.DataFrame, facts: "Sidecar", margin: float) -> list[_Trial]:
    processes = facts["processes"]
    medians = [float(np.median(times)) for times in process_repeats.processes(steps)]
    batches = [count_samples(own) for own in processes]
    base = {own["round"]: place
            for place, (own, _) in enumerate(zip(processes, medians, strict=True)) if not own["side"]}  # fmt: skip
    base_side = _numeric_side(processes, "", facts)
    (plain, *_) = [own for own in processes if not own["side"]]
    found = []
    for side in dict.fromkeys(own["side"] for own in processes if own["side"]):
        mine = [place for place, own in enumerate(processes) if own["side"] == side]
        # A sample's time, as a step may have another number of them.
        factor = batches[0] / batches[mine[0]]
        pairs = [(base[processes[place]["round"]], place) for place in mine if processes[place]["round"] in base]
        before, after = [medians[first] for first, _ in pairs], [medians[place] * factor for _, place in pairs]
        places = ([first for first, _ in pairs], [place for _, place in pairs])
        said: dict[str, Any] = {}
        if facts["trials"].get("repeats", 0) is None:
            ratio, said = _decide(before, after, margin, facts)
        elif len(pairs) < 2:
            ratio = None
        else:
            ratio = speedup.estimate_ratio(before, after, places, margin=margin)
            said = {"ratio": ratio}
        if side in facts["failed"]:
            said["why"] = f"failed in a later round: {explain_failure(side, facts)}"
        compared = numerics.compare_sides(base_side, _numeric_side(processes, side, facts))
        gain = 1 / ratio.ratio if ratio else float(np.median(before) / np.median(after)) if pairs else np.nan
        found.append(
            _Trial(
                settings=side,
                words=" ".join(_words(side, facts)),
                base_ns=float(np.median(before)) if pairs else np.nan,
                ns=float(np.median([medians[place] for place in mine])),
                gain=gain,
                gain_low=1 / ratio.high if ratio else np.nan,
                gain_high=1 / ratio.low if ratio else np.nan,
                processes=len(mine),
                chosen=side == facts["chosen"] and compared["numerics"] != numerics.DIFFERENT,
                loss_difference=_output_distance(_compare_losses(plain), _compare_losses(processes[mine[0]])),
                output_difference=_output_distance(plain.get("outputs"), processes[mine[0]].get("outputs")),
                numbers=compared,
                clocks=_compare_clocks(processes, side),
                **said,
            )
        )
    return sorted(found, key=lambda row: -row.gain)


def _decide(
    before: Sequence[float], after: Sequence[float], margin: float, facts: "Sidecar"
) -> tuple[speedup.Ratio | None, dict[str, str]]:
    """Return the ratio of rounds that were repeated until they decide, with the outcome, and what a decision lacks.

    facts: of the trials: `round_s`, the seconds of a process with the settings and one of the unchanged cell, and
    `spread`, by which they were decided.
    """
    known = sequential.Spread(**facts.get("spread", asdict(sequential.ASSUMED)))
    decision = sequential.decide(np.log(np.array(after) / np.array(before)).tolist(), margin, known=known)
    lacks, round_s = "", facts.get("round_s", np.nan)
    if decision.missing:
        time = f" ({decision.missing * round_s:.3g} s)" if round_s > 0 else ""
        lacks = f"about {decision.missing} more rounds{time} would decide: raise trials.budget"
    elif decision.outcome == speedup.UNDECIDED and decision.rounds >= sequential.FORECAST_FROM:
        lacks = f"{sequential.LOOKS[-1]} rounds would not decide: stop other programs, or time more steps"
    return decision.found, {"verdict": decision.outcome, "why": lacks}


def _compare_clocks(processes: "Sequence[ProcessFacts]", side: str) -> str:
    """Return how the clock differed between processes of the unchanged cell and of settings; empty if it did not."""
    sides = [[own for own in processes if own["side"] == name] for name in ("", side)]
    one, other = (cast("Sidecar", {"processes": mine}) for mine in sides)
    return "".join(gpu_state.describe_clock_difference(one, other))


def _numeric_side(processes: "Sequence[ProcessFacts]", side: str, facts: "Sidecar") -> numeric_checks.NumericSide:
    """Return what the processes with these settings computed; their sidecar has the unchanged cell."""
    mine = [process for process in processes if process["side"] == side]
    changed = settings.parse_words(_words(side, facts))
    cell = cast(CellSettings, {**facts.get("cell", {}), **changed})
    return numeric_checks.read_side(cast("Sidecar", {**facts, **mine[0]}), cell, mine)


def _unmeasured_rows(facts: "Sidecar", measured: Sequence[_Trial]) -> list[_Trial]:
    """Yield rows of settings that failed at once, cannot be tried, or were left out because trials ended."""
    ran = {row.settings for row in measured}
    done = ran | set(facts["failed"])
    why = "the budget had ended: raise trials.budget"
    if facts["ended"] == trial_runner.FAILED:
        why = f"the unchanged cell had failed: {facts['failed']['']}"
    left = dict.fromkeys((name for name in facts["tried"] if name not in done), why)
    beyond = [name for name in facts["trials"]["candidates"] if name not in {*facts["tried"], *done}]
    left |= dict.fromkeys(beyond, "others are expected to help more: raise trials.max_settings")
    failed = {name: explain_failure(name, facts) for name in facts["failed"] if name and name not in ran}
    groups = ((FAILED, failed), (REFUSED, facts["trials"]["refused"]), (LEFT_OUT, left))
    return [
        _Trial(settings=name, words=" ".join(_words(name, facts)), why=why, verdict=verdict)
        for verdict, given in groups
        for name, why in given.items()
    ]


def _words(side: str, facts: "Sidecar") -> Sequence[str]:
    """Return the words of settings as trials recorded them; of what they never came to, those of the job."""
    return facts.get("words", {}).get(side, facts["trials"]["candidates"].get(side, ()))


def explain_failure(side: str, facts: "Sidecar") -> str:
    """Return why settings failed: because of which of them, if some of them failed by themselves or with fewer others.

    It is said as well if each of them worked without all of the others.
    """
    mine = {*_words(side, facts)}
    parts = {name: {*_words(name, facts)} for name in facts["failed"] if name}
    inner = {name: words for name, words in parts.items() if words < mine}
    least = [name for name, words in inner.items() if not any(other < words for other in inner.values())]
    if least:
        return "; ".join(f"because of `{' '.join(_words(name, facts))}`: {facts['failed'][name]}" for name in least)
    working = [{*_words(own["side"], facts)} for own in facts["processes"]]
    alone = len(mine) > 1 and mine <= {word for words in working if words < mine for word in words}
    return f"{'only together: ' if alone else ''}{facts['failed'][side]}"


def _compare_losses(facts: "ProcessFacts") -> list[float]:
    return [] if (loss := facts.get("loss")) is None else [loss]


def _output_distance(given: Sequence[float] | None, others: Sequence[float] | None) -> float:
    """Return the largest difference relative to the largest value; nan if values are missing or do not correspond."""
    one, other = np.array(given or [], dtype=float), np.array(others or [], dtype=float)
    if not len(one) or one.shape != other.shape or not np.abs(one).max():
        return float("nan")
    return float(np.abs(other - one).max() / np.abs(one).max())


def _expected_of(row: _Trial, known: "Mapping[str, ExpectedGain]") -> "ExpectedGain":
    """Return the expected gain of a trial's settings, whatever order they were combined in."""
    mine = {*row.words.split()}
    found = (one for name, one in known.items() if name == row.settings or (mine and mine == {*one.get("words", ())}))
    nothing: ExpectedGain = {"gain": None, "low": None, "high": None, "verdict": "", "advised": False}
    return {**nothing, **next(found, nothing)}


def judge_outcome(row: reading.Row) -> str:
    """Return whether a gain was as expected, or advice slowed the cell down.

    It is empty without both gains, and for settings with which the cell computes something else.
    """
    if not row["expected"] > 0 or not row["gain"] > 0 or row["numerics"] == numerics.DIFFERENT:
        return ""
    # Certain or not, because slower settings are not repeated often enough to be certain.
    if row["advised"] and row["gain"] < 1 - trial_search.WORTH:
        return SLOWED
    near = abs(row["expected"] / row["gain"] - 1) <= NEAR
    # For the same reason, the interval of so few processes contains almost any gain.
    within = row["processes"] > trial_search.ROUNDS and row["gain_low"] <= row["expected"] <= row["gain_high"]
    return HIT if near or within else MISS


def main(paths: Sequence[str], expected: str | None, margin: float, csv: str) -> None:
    """Read the cells' trials and the expected gains, and write the table."""
    known = read_json(expected, {"cells": {}})["cells"] if expected else {}
    cells = [(cell_of(path), reading.read(path, REPEATED), read_facts(f"{path}.json", NEEDS)) for path in paths]
    write_csv(tabulate_trials(cells, known, margin), csv)


# Write what is expected of the plans of each cell, so that trials begin with the best plans, and how far its processes
# were apart.


def known_spreads(timed: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the spread of rounds (sequential.Spread) by cell (`lstm train`); timed: CSVs of the cells' baselines."""
    logs: dict[str, list[float]] = {}
    for path in timed:
        several = "processes" in read_facts(f"{path}.json", {})
        steps = process_repeats.processes(reading.read(path, REPEATED)) if several else []
        logs[" ".join(cell_of(path).values())] = [float(np.log(np.median(times))) for times in steps]
    return {
        cell: asdict(sequential.learn_spread(own, [one for name, one in logs.items() if name != cell]))
        for cell, own in logs.items()
    }


def write_expected_gains(
    plans: str,
    timed: Sequence[str],
    config: "Config",
    batches: Mapping[str, int],
    failed: Mapping[str, Mapping[str, str]],
    output: str,
) -> None:
    """Read the plans and the cells' baselines, and write expected gains by cell and candidate, and spreads by cell."""
    found = expected_gains(reading.read(plans, PLANS_TABLE), config, batches, failed)
    write_json({"cells": found, "spreads": known_spreads(timed)}, output)
