"""Judge each cell, its top kernels and its layers by the rules of rules.yaml, with the evidence."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.tables import schemas
from profzoo.tables.schemas import CELL
from profzoo.verdicts import (
    advice_scores,
    chain_verdicts,
    guard_verdicts,
    host_places,
    layer_verdicts,
    logged_readings,
    memory_verdicts,
    ncu_advice,
    noted_verdicts,
    repeated_verdicts,
    sync_places,
    sync_verdicts,
    tuning_verdicts,
)
from profzoo.verdicts.cell_facts import CellFacts
from profzoo.verdicts.clock_verdicts import judge_clocks
from profzoo.verdicts.feasibility import judge_feasibility
from profzoo.verdicts.gain_models import CellSimulation
from profzoo.verdicts.launch_traits import mark_traits
from profzoo.verdicts.other_settings import other_setting_rows
from profzoo.verdicts.ranking import rank_verdicts
from profzoo.verdicts.rule_evaluation import UNDECIDED, CellRules
from profzoo.verdicts.rule_types import KnownSettings, Rules
from profzoo.verdicts.table_columns import COLUMNS
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.program import Program

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine

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

    `share` is the share of the unprofiled step that a row is about. A cell to which no rule applies has the verdict
    NOTHING, one with too little evidence UNDECIDED. `limit` is the gain at which the CPU limits the step; `method` is
    what-if simulation or Amdahl's law; `score` says how right such advice was; `settings` are words of models.run.
    """
    rows, known = [], facts or CellFacts()
    for cell, step in steps.groupby(CELL, sort=False):
        traced = (programs or {}).get(cell, {}), scored, (lines or {}).get(cell)
        judged = judge_cell(step, ran_with.get(cell, {}), given, peaks, *traced)
        launches = schemas.rows_of_cell(kernels, *cell)
        mine = None if roofline is None else schemas.rows_of_cell(roofline, *cell)
        traits = mark_traits(launches, mine, given["traits"], peaks)
        found = [*judged.of_step(), *judged.of_trace(), *judged.of_kernels(traits)]
        found += chain_verdicts.judge_chains(judged, (chains or {}).get(cell))
        trees = (layers or {}).get(cell)
        found += _judge_noted(judged, launches, trees and trees[1], cell, known)
        found += _undecided_without_counters(traits, given["floors"]["counted"])
        everything = _rank(judged, _name_reasons(found, cell, known), roofline is not None)
        said = (
            ncu_advice.tabulate_ncu_advice(*advice[cell], launches, judged.shares["kernels"]) if cell in advice else []
        )
        of_layers = layer_verdicts.judge_top_layers(judged, *trees, peaks) if trees else []
        others = other_setting_rows(judged, traits, everything)
        own = dict(zip(CELL, cell, strict=True))
        for group in (everything, judged.of_each(traits), of_layers, others, said):
            rows += [{**own, **row.columns(), "rank": rank} for rank, row in enumerate(group, 1)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _name_reasons(found: Sequence[Verdict], cell: CellKey, facts: CellFacts) -> list[Verdict]:
    """Return verdicts on a cell that begin with what is known of the lines and buckets behind them."""
    lines, kept = (facts.host_lines.get(cell), facts.lines.get(cell)), memory_verdicts.without_stalls(found)
    return [sync_places.name_sync(host_places.name_places(row, *lines), facts.syncs.get(cell)) for row in kept]


def _rank(judged: CellRules, found: Sequence[Verdict], counted: bool) -> list[Verdict]:
    """Return verdicts in their order, or the row that says that nothing stands out; counted: whether ncu counted.

    Those on waits of lines that only log say what it gains to read less often.
    """
    told = logged_readings.advise_logging(found, judged.feasible)
    ranked = rank_verdicts(told, judged.feasible, judged.replayed, judged.step)
    return ranked or [_nothing_row(judged.step, counted)]


def _judge_noted(
    judged: CellRules, launches: pd.DataFrame, tree: pd.DataFrame | None, cell: CellKey, facts: CellFacts
) -> Iterator[Verdict]:
    """Yield verdicts by what was noted of a cell's work and its GPU; tree: its table of layers, None without it."""
    noted, rules = facts.noted.get(cell), judged.given["rules"]
    yield from judge_clocks(judged, noted.clocks if noted else ())
    yield from sync_verdicts.judge_repeated_sync(judged, facts.syncs.get(cell))
    if noted:
        yield from tuning_verdicts.judge_tuning(judged, noted.activities)
        yield from noted_verdicts.judge_padding(judged, launches, noted)
        yield from memory_verdicts.judge_memory(judged, noted.allocator)
        yield from noted_verdicts.judge_compilation(rules, noted, judged.ran_with)
        times = float(judged.step["step_median_ns"]), float(judged.step["idle_ns"])
        guards = guard_verdicts.find_guards(noted.activities)
        yield from guard_verdicts.judge_guards(rules, guards, judged.ran_with, *times)
        yield from repeated_verdicts.judge_repeated(judged, noted.repeated, tree, launches["total_ns"].sum())


def judge_cell(
    step: pd.DataFrame,
    ran_with: KnownSettings,
    given: Rules,
    peaks: Mapping[str, float],
    programs: Mapping[int, Program],
    scored: advice_scores.Scores | None = None,
    lines: "Sequence[BlockingLine] | None" = None,
) -> CellRules:
    """Return the judge of a cell, by the process with the busiest GPU.

    Args:
        step: the cell's rows of the table of steps, one per process; programs: its traced steps, by process.
        ran_with, given, peaks, scored: as for CellRules. lines: lines at which its step waits; None if unknown.
    """
    where = step.loc[step["busy_ns"].idxmax()]
    program = programs.get(int(where["process"]))
    replayed = CellSimulation(program, (scored or advice_scores.load_scores()).unrepeated) if program else None
    feasible = judge_feasibility(ran_with, program, lines)
    return CellRules(where, ran_with, given, peaks, replayed, scored, feasible)


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
            next_step=f"counters cover {share:.0%} of GPU time: raise ncu.budget, or measure the section set "
            "roofline for all configurations",
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
