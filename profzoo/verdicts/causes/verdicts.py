"""Judge each cell, its top kernels and its layers by the rules of rules.yaml, with the evidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.formatting import gains, percent
from profzoo.io.csv_tables import Row
from profzoo.kernels.kernel_classes import classify
from profzoo.range_names import FORWARD
from profzoo.tables import schemas
from profzoo.tables.cell_tables import amdahl_gain
from profzoo.tables.kernel_table import KEYS
from profzoo.tables.schemas import CELL
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu.raw_page import SPEEDUP, function_name
from profzoo.verdicts import SIMULATED, advice_scores
from profzoo.verdicts.causes import cause_verdicts, noted_verdicts
from profzoo.verdicts.causes.noted_verdicts import NOTED, judge_clocks
from profzoo.verdicts.gain_models import SENT_ONCE, CellSimulation, RequestedChange
from profzoo.verdicts.rules.cell_facts import CellFacts, NotedFacts
from profzoo.verdicts.rules.feasibility import (
    EVERYTHING,
    GRAPH_WORDS,
    Feasibility,
    describe_lines,
    judge_feasibility,
    refuse_failed,
)
from profzoo.verdicts.rules.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, CellRules, other_setting_rows
from profzoo.verdicts.rules.rule_types import Explanation, KnownSettings, Rules
from profzoo.verdicts.rules.step_quality import SYNCHRONISATION, no_steps_row, without_gain
from profzoo.verdicts.verdict import COLUMNS, TIMED_UNDER, UNDECIDED, Verdict
from profzoo.what_if.predicted_gains import count_sending_passes
from profzoo.what_if.program import Program

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine, GradientSync


# Select the advice of ncu's own rules on a cell's kernels, by its value for the whole step.

# Rows per cell.
MAX_ROWS = 5
# ncu's word for a speed-up of the whole launch; a `local` one is of the unit that the rule looks at.
WHOLE = "global"


def tabulate_ncu_advice(
    details: pd.DataFrame, launches: pd.DataFrame, kernels: pd.DataFrame, share: float
) -> list[Verdict]:
    """Return verdicts, the largest saving first, at most MOST, one per function and rule.

    Args:
        details: ncu's details page; launches: id and launch configuration of each launch on it.
        kernels: the cell's kernel table; share: that its GPU time has of the step.

    ncu estimates how much faster one launch would get, by which a launch of 1 µs may lead. What counts is the time that
    all launches of its configuration take: `share` of the step, and `gain` of the whole step where the estimate is of
    the whole launch. Both are empty for launches whose configuration the kernel table lacks.
    """
    if SPEEDUP not in details:
        return []
    said = details[details["Rule Type"].eq("OPT") & details[SPEEDUP].gt(0)].rename(columns={SPEEDUP: "percent"})
    times = kernels.groupby(KEYS)["total_ns"].sum() / kernels["total_ns"].sum() * share
    known = launches.drop_duplicates("id").set_index("id")
    keys = pd.MultiIndex.from_frame(known.reindex(said["ID"])[KEYS])
    said = said.assign(
        function=said["Kernel Name"].map(function_name), share=times.reindex(keys).to_numpy(dtype="float64")
    )
    kinds = kernels.drop_duplicates(KEYS).set_index(KEYS)["class"].reindex(keys).to_numpy()
    said["class"] = [
        kind if isinstance(kind, str) else classify(name) for kind, name in zip(kinds, said["Kernel Name"], strict=True)
    ]
    said["saved"] = said["share"] * said["percent"] / 100
    said = said.sort_values(["saved", "percent"], ascending=False, kind="stable", na_position="last")
    return [
        Verdict(
            level="kernel",
            kernel_class=row["class"],
            function=row["function"],
            verdict=f"ncu: {row['Rule Name']}",
            metric=f"estimated speed-up, {row['Estimated Speedup Type']}, %",
            value=row["percent"],
            share=row["share"],
            evidence=f"ncu-details.csv: launch {row['ID']}",
            gain=amdahl_gain(row["saved"], 1) if row["Estimated Speedup Type"] == WHOLE else None,
            next_step=row["Rule Description"],
            by=TOOL,
            source=f"ncu, section {row['Section Name']}",
        )
        for _, row in said.drop_duplicates(["function", "Rule Name"]).head(MAX_ROWS).iterrows()
    ]


# Puts the verdicts on a cell into order, by their gains and by which of them explain others.

# A finding explains a class if mending it takes away at least this share of what the remedy of the class saves.
MOST = 0.5
# Conditions of explanations in rules.yaml.
PREVENTED, BY_SIMULATION = "prevented", "simulated"


def rank_verdicts(
    found: Sequence[Verdict],
    explanations: Sequence[Explanation],
    feasible: Feasibility = EVERYTHING,
    replayed: CellSimulation | None = None,
    step: Row | None = None,
) -> list[Verdict]:
    """Sort verdicts by their gain, but put causes before what they explain.

    An undecided verdict is sorted by the largest gain that it may have. A verdict without a gain is not a cause.

    Args:
        found, feasible: the verdicts on a cell, and what it cannot run with.
        explanations: which verdicts explain which, of rules.yaml.
        replayed, step: what-if simulation of its steps and its row of the table of steps; without them, nothing is
            explained by simulation.
    """
    rows = sorted(found, key=lambda row: -(row.gain or row.potential))
    for one in explanations:
        if one["when"] == BY_SIMULATION:
            if replayed and step is not None:
                rows = _after_explanations(rows, one, replayed, step)
        elif one["when"] != PREVENTED or feasible.refusal(GRAPH_WORDS):
            first = next((index for index, row in enumerate(rows) if row.verdict in one["explains"]), len(rows))
            causes = [row for row in rows[first:] if row.verdict in one.get("by", ()) and row.gain]
            rows = [*rows[:first], *causes, *(row for row in rows[first:] if row not in causes)]
    return rows


def _after_explanations(
    rows: Sequence[Verdict], one: Explanation, replayed: CellSimulation, step: Row
) -> list[Verdict]:
    """Return sorted verdicts with each that is explained by simulation behind the first that explains it."""
    ordered = list(rows)
    for general in [row for row in rows if row.verdict in one["explains"] and row.change]:
        place = ordered.index(general)
        later = [row for row in ordered[place + 1 :] if row.verdict not in one["explains"] and row.change and row.gain]
        first = next((row for row in later if explains(row, general, replayed, step)), None)
        if first:
            ordered.remove(general)
            ordered.insert(ordered.index(first) + 1, general)
    return ordered


def explains(finding: Verdict, general: Verdict, replayed: CellSimulation, step: Row) -> bool:
    """Return whether most of the time that the remedy of a general class saves is gone once a finding is mended.

    This is seen by simulation of the steps with either change, and with both.
    """
    assert finding.change and general.change
    mended, cured = (_simulated_gain(row, replayed, step) for row in (finding, general))
    both = replayed.gain_together([finding.change, general.change], step, 0.0) if mended and cured else None
    if not (mended and cured and both):
        return False
    alone, left = 1 - 1 / cured, 1 / mended - 1 / both.gain
    return alone > 0 and left <= (1 - MOST) * alone


def _simulated_gain(row: Verdict, replayed: CellSimulation, step: Row) -> float | None:
    """Return the gain of a verdict's change by simulation, which is the verdict's own if it was simulated."""
    if row.method == SIMULATED:
        return row.gain
    found = replayed.gain(row.change, step, 0.0) if row.change else None
    return found.gain if found else None


# Says in the verdict on communication how gradients are sent, and what keeps that from the backward pass.

COMMUNICATION = "communication"
# Bytes of a megabyte as the option bucket_cap_mb counts them, and what that option is by default.
MB, USUAL_MB = 2**20, 25


def describe_sync(sync: "GradientSync") -> str:
    """Describe buckets and overlap, and what prevents it.

    >>> sync = {"bucket_bytes": [12582912], "find_unused_parameters": True, "communication_ns": 100, "overlap_ns": 13}
    >>> describe_sync(sync)[:73]
    'gradients are sent in 1 bucket of 12 MB, 13 % of it beside the backward p'
    """
    sizes = sync["bucket_bytes"]
    buckets = f"{len(sizes)} bucket{'s' if len(sizes) > 1 else ''} of {max(sizes, default=0) / MB:,.0f} MB at most"
    if len(sizes) == 1:
        buckets = f"1 bucket of {sizes[0] / MB:,.0f} MB"
    took = sync["communication_ns"]
    beside = f", {min(sync['overlap_ns'] / took, 1) * 100:.0f} % of it beside the backward pass" if took else ""
    told = [f"gradients are sent in {buckets}{beside}"]
    if len(sizes) == 1:
        smaller = max(min(sizes[0] / MB / 4, USUAL_MB), 1)
        told.append(f"one bucket is complete only when all gradients are, so set bucket_cap_mb={smaller:.0f}")
    if sync["find_unused_parameters"]:
        told.append(
            "find_unused_parameters=True looks through the graph in each step, so set it only where it is needed"
        )
    return "; ".join(told)


def name_sync(row: Verdict, sync: "GradientSync | None") -> Verdict:
    """Return a verdict on communication whose next step begins with how gradients are sent; others as they are."""
    if row.about != COMMUNICATION or not sync:
        return row
    return replace(row, next_step=f"{describe_sync(sync)}: {row.next_step}")


# Judges gradients that are sent in each backward pass although only their sum is used: no_sync is missing.

REPEATED = "repeated_sync"


def judge_repeated_sync(judged: CellRules, sync: "GradientSync | None") -> Iterator[Verdict]:
    """Yield the verdict on gradients that are sent before the last backward pass of an update, by simulation.

    sync: how the process sends gradients. Where it trains several networks of DistributedDataParallel, backward passes
    may send different gradients, and nothing is said.
    """
    for rule in judged.given["rules"]:
        if rule["of"] != NOTED or rule["share"] != REPEATED or judged.replayed is None or not sync:
            continue
        passes = count_sending_passes(judged.replayed.program)
        if sync.get("networks") != 1 or passes < 2:
            continue
        gain = judged.replayed.gain(RequestedChange(SENT_ONCE), judged.step, 0.0)
        if gain is None or (share := 1 - 1 / gain.gain) < rule["at_least"]:
            continue
        row = judged.row(rule, share, None, LAYER_LEVEL, "program.npz: run again")
        lead = f"gradients of the same weights are sent in {passes:.0f} backward passes of a step: "
        yield judged.expect(replace(row, level=CELL_LEVEL, lead=lead))


# Says what reading values for logging less often would gain, such as the loss: a wait or a few in each step.

# The share of the rule about them.
LOGGING = "logging_removed"
# Operations by which programs read a number to show it.
READING = (".item()", ".tolist()", "float()", "int()", "print()", "format()", "str()", ".cpu()", ".numpy()")
# So many waits per step are for logging; more are part of the computation.
FEW = 4
# How many steps apart values are read in the advice.
APART = 10


def find_logged(lines: "Sequence[BlockingLine] | None") -> "Sequence[BlockingLine]":
    """Return a step's lines that wait if all of them read a few numbers outside of the forward and backward pass.

    lines: those of the step itself; None if none was looked for.
    """
    known = list(lines or ())
    reads = all(one["operation"] in READING and one["range"] not in (*FORWARD, "backward") for one in known)
    return known if known and reads and sum(one["calls"] for one in known) <= FEW else []


def advise_logging(found: Sequence[Verdict], feasible: Feasibility) -> list[Verdict]:
    """Return verdicts; those on waits of lines that only log say what it gains to read every tenth step.

    The verdict that reading costs less than synchronisation-bound asks for stays only where there are such lines, and
    where no verdict on synchronisation says more.
    """
    lines, told = find_logged(feasible.lines), any(row.about == SYNCHRONISATION for row in found)
    kept = []
    for row in found:
        if row.about not in (LOGGING, SYNCHRONISATION) or (row.about == SYNCHRONISATION and not lines):
            kept.append(row)
        elif lines and (row.about == SYNCHRONISATION or not told):
            kept.append(_advised(row, lines))
    return kept


def _advised(row: Verdict, lines: "Sequence[BlockingLine]") -> Verdict:
    """Return a verdict with the advice to read less often, and what that gains."""
    named = "" if row.about == SYNCHRONISATION else f"{describe_lines(lines)}: "
    rest = (
        f", {gains(amdahl_gain(1 - 1 / row.gain, 1 - 1 / APART))[0]} times as fast" if row.gain and row.gain > 1 else ""
    )
    advice = (
        f"a value that is only logged can be read every {APART} steps{rest}, or be kept on the GPU and read after the "
        "next step has been launched, which gains nearly all of it"
    )
    text = f"{row.next_step}; {advice}" if row.about == SYNCHRONISATION else f"{named}{advice}"
    return replace(row, next_step=text)


NOTHING = "nothing stands out"
CellKey = tuple[str, str]


def tabulate_verdicts(
    steps: pd.DataFrame,
    kernels: pd.DataFrame,
    roofline: pd.DataFrame | None,
    peaks: Mapping[str, float],
    advice: Mapping[CellKey, tuple[pd.DataFrame, pd.DataFrame]],
    ran_with: Mapping[CellKey, KnownSettings],
    given: Rules,
    layers: Mapping[CellKey, tuple[pd.DataFrame, pd.DataFrame]] | None = None,
    programs: Mapping[CellKey, Mapping[int, Program]] | None = None,
    scored: advice_scores.Scores | None = None,
    lines: "Mapping[CellKey, Sequence[BlockingLine]] | None" = None,
    chains: Mapping[CellKey, tuple[pd.DataFrame, pd.DataFrame]] | None = None,
    facts: CellFacts | None = None,
) -> pd.DataFrame:
    """Return the table of verdicts (COLUMNS) on each cell, largest gain first, its kernels, layers and other settings.

    Args:
        steps, kernels, roofline: the tables of these names; verdicts that need counters are not given without roofline.
        peaks: rates by name, flop/s. advice: ncu's details page and the launches on it, by cell.
        ran_with: settings of each cell. given: rules. layers: kernels by owning layer and the tree of layers, by cell.
        programs: traced steps of each cell, by process. scored: records of advice. lines: those that wait, by cell.
        chains: fusible work, by cell. facts: what else processes noted of their steps.

    `share` is that of the unprofiled step that a row is about. A cell to which no rule applies has the verdict NOTHING,
    one with too little evidence or without steps UNDECIDED. `limit` is the gain at which the CPU limits the step;
    `method` is what-if simulation or Amdahl's law; `score` says how right such advice was; `settings` are words.
    """
    rows, known = [], facts or CellFacts()
    for cell, step in steps.groupby(CELL, sort=False):
        here = advice_scores.scores_on(known.devices.get(cell), scored)
        trees, chain = (layers or {}).get(cell), (chains or {}).get(cell)
        traced = (programs or {}).get(cell, {}), here, (lines or {}).get(cell)
        more = known.failed.get(cell), chain[1] if chain else None, known.noted.get(cell)
        judged = judge_cell(step, ran_with.get(cell, {}), given, peaks, *traced, *more)
        launches = schemas.rows_of_cell(kernels, *cell)
        traits = _mark_traits(judged, launches, roofline)
        groups = [
            judged.of_each(traits),
            cause_verdicts.judge_top_layers(judged, *trees) if trees else [],
            tabulate_ncu_advice(*advice[cell], launches, judged.shares["kernels"]) if cell in advice else [],
        ]
        if cell in known.whole:
            groups = [[no_steps_row(judged.step["steps"])], *([without_gain(row) for row in one] for one in groups)]
        else:
            everything = _judge_step(judged, traits, launches, chain, trees and trees[1], known, roofline is not None)
            groups = [everything, *groups[:2], other_setting_rows(judged, traits, everything), *groups[2:]]
        own = dict(zip(CELL, cell, strict=True)) | {TIMED_UNDER: known.timed_under.get(cell)}
        rows += [{**row.columns(), **own, "rank": rank} for group in groups for rank, row in enumerate(group, 1)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _mark_traits(judged: CellRules, launches: pd.DataFrame, roofline: pd.DataFrame | None) -> pd.DataFrame:
    """Return a cell's launches with their traits; roofline: the table of this name."""
    own = None if roofline is None else schemas.rows_of_cell(roofline, judged.step["model"], judged.step["phase"])
    return judged.mark_traits(launches, own)


def _judge_step(
    judged: CellRules,
    traits: pd.DataFrame,
    launches: pd.DataFrame,
    chains: tuple[pd.DataFrame, pd.DataFrame] | None,
    tree: pd.DataFrame | None,
    known: CellFacts,
    counted: bool,
) -> list[Verdict]:
    """Return the verdicts on a cell's step in their order; tree: its table of layers; counted: whether ncu counted."""
    cell = judged.step["model"], judged.step["phase"]
    found = [*judged.of_step(), *judged.of_trace(), *judged.of_kernels(traits)]
    found += cause_verdicts.judge_chains(judged, chains)
    found += _judge_noted(judged, launches, tree, cell, known)
    found += _undecided_without_counters(traits, judged.floors["counted"])
    return _rank(judged, _name_reasons(found, cell, known), counted)


def _name_reasons(found: Sequence[Verdict], cell: CellKey, facts: CellFacts) -> list[Verdict]:
    """Return verdicts on a cell that begin with what is known of the lines and buckets behind them."""
    lines, kept = (facts.host_lines.get(cell), facts.lines.get(cell)), cause_verdicts.without_stalls(found)
    return [name_sync(noted_verdicts.name_places(row, *lines), facts.syncs.get(cell)) for row in kept]


def _rank(judged: CellRules, found: Sequence[Verdict], counted: bool) -> list[Verdict]:
    """Return verdicts in their order, or the row that says that nothing stands out; counted: whether ncu counted.

    Those on waits of lines that only log say what it gains to read less often.
    """
    told = advise_logging(found, judged.feasible)
    ranked = rank_verdicts(told, judged.given["explanations"], judged.feasible, judged.replayed, judged.step)
    told = [noted_verdicts.tell_per_token(row, judged.step) for row in ranked]
    return told or [_nothing_row(judged.step, counted)]


def _judge_noted(
    judged: CellRules, launches: pd.DataFrame, tree: pd.DataFrame | None, cell: CellKey, facts: CellFacts
) -> Iterator[Verdict]:
    """Yield verdicts by what was noted of a cell's work and its GPU; tree: its table of layers, None without it."""
    noted, rules = facts.noted.get(cell), judged.given["rules"]
    yield from judge_clocks(judged, noted.clocks if noted else ())
    yield from judge_repeated_sync(judged, facts.syncs.get(cell))
    yield from cause_verdicts.judge_tuning(judged, noted.activities if noted else None)
    if noted:
        yield from noted_verdicts.judge_padding(judged, launches, noted)
        yield from cause_verdicts.judge_memory(judged, noted.allocator)
        yield from noted_verdicts.judge_window(rules, noted, judged.ran_with)
        times = float(judged.step["step_median_ns"]), float(judged.step["idle_ns"])
        guards = cause_verdicts.find_guards(noted.activities)
        yield from cause_verdicts.judge_guards(rules, guards, judged.ran_with, *times)
        yield from cause_verdicts.judge_repeated(judged, noted.repeated, tree, launches["total_ns"].sum())


def judge_cell(
    step: pd.DataFrame,
    ran_with: KnownSettings,
    given: Rules,
    peaks: Mapping[str, float],
    programs: Mapping[int, Program],
    scored: advice_scores.Scores | None = None,
    lines: "Sequence[BlockingLine] | None" = None,
    failed: Mapping[str, str] | None = None,
    cast: pd.DataFrame | None = None,
    noted: NotedFacts | None = None,
) -> CellRules:
    """Return the judge of a cell, by the process with the busiest GPU.

    Args:
        step: the cell's rows of the table of steps, one per process; programs: its traced steps, by process.
        ran_with, given, peaks, scored, cast: as for CellRules. lines: lines at which its step waits; None if unknown.
        failed: why settings failed in trials, by their words. noted: what its processes noted.
    """
    where = step.loc[step["busy_ns"].idxmax()]
    program = programs.get(int(where["process"]))
    own = replace((noted or NotedFacts()).loading, workers=ran_with.get("workers") or 0)
    replayed = CellSimulation(program, (scored or advice_scores.load_scores()).unrepeated, own) if program else None
    loading = replayed.fit_loading() if replayed else None
    feasible = refuse_failed(judge_feasibility(ran_with, program, lines), failed or {})
    return CellRules(where, ran_with, given, peaks, replayed, scored, replace(feasible, loading=loading), cast)


def _undecided_without_counters(traits: pd.DataFrame, floor: float) -> Iterator[Verdict]:
    """Yield an undecided verdict if some launches have counters, but too few for verdicts that need them."""
    total = traits["total_ns"].sum()
    share = traits["counted_ns"].sum() / total if total else 1.0
    if 0 < share < floor:
        yield Verdict(
            level="cell",
            verdict=UNDECIDED,
            metric="share of GPU time with counters",
            value=share,
            threshold=floor,
            evidence="roofline.csv: counted_share",
            next_step=f"counters cover {percent(share, floor)} of GPU time: raise ncu.budget, or measure the section "
            "set roofline for all configurations",
        )


def _nothing_row(step: pd.Series, counted: bool) -> Verdict:
    more = "" if counted else ": measure the section set roofline (ncu.set) to find what limits its kernels"
    return Verdict(
        level="cell",
        verdict=NOTHING,
        metric="share of the step: busy",
        value=step["busy_share"],
        share=step["busy_share"],
        evidence="steps.csv: busy_share",
        gain=1.0,
        next_step=f"the GPU is busy {step['busy_share']:.0%} of the step{more}",
    )
