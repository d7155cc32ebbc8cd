"""Judge each cell, its top kernels and its layers by the rules of rules.yaml, with the evidence."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.tables import schemas
from profzoo.tables.schemas import CELL
from profzoo.verdicts import advice_scores, chain_verdicts, layer_verdicts, ncu_advice
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
) -> pd.DataFrame:
    """Return the table of verdicts (COLUMNS) on each cell, largest gain first, its kernels, layers and other settings.

    Args:
        steps, kernels, roofline: the tables of these names; verdicts that need counters are not given without roofline.
        peaks: rates by name, flop/s. advice: ncu's details page and the launches on it, by cell.
        ran_with: settings of each cell. given: rules. layers: kernels by owning layer and the tree of layers, by cell.
        programs: traced steps of each cell, by process. scored: records of advice. lines: those that wait, by cell.
        chains: fusible work, by cell.

    `share` is the share of the unprofiled step that a row is about. A cell to which no rule applies has the verdict
    NOTHING, one with too little evidence UNDECIDED. `limit` is the gain at which the CPU limits the step; `method` is
    what-if simulation or Amdahl's law; `score` says how right such advice was; `settings` are words of models.run.
    """
    rows = []
    for cell, step in steps.groupby(CELL, sort=False):
        judged = judge_cell(
            step, ran_with.get(cell, {}), given, peaks, (programs or {}).get(cell, {}), scored, (lines or {}).get(cell)
        )
        launches = schemas.rows_of_cell(kernels, *cell)
        mine = None if roofline is None else schemas.rows_of_cell(roofline, *cell)
        traits = mark_traits(launches, mine, given["traits"], peaks)
        found = [*judged.of_step(), *judged.of_trace(), *judged.of_kernels(traits)]
        found += chain_verdicts.judge_chains(judged, (chains or {}).get(cell))
        found += _undecided_without_counters(traits, given["floors"]["counted"])
        ordered = rank_verdicts(found, judged.feasible, judged.replayed, judged.step)
        everything = ordered or [_nothing_row(judged.step, roofline is not None)]
        said = (
            ncu_advice.tabulate_ncu_advice(*advice[cell], launches, judged.shares["kernels"]) if cell in advice else []
        )
        of_layers = layer_verdicts.judge_top_layers(judged, *layers[cell], peaks) if layers and cell in layers else []
        others = other_setting_rows(judged, traits, everything)
        own = dict(zip(CELL, cell, strict=True))
        for group in (everything, judged.of_each(traits), of_layers, others, said):
            rows += [{**own, **row.columns(), "rank": rank} for rank, row in enumerate(group, 1)]
    return pd.DataFrame(rows, columns=COLUMNS)


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
