"""Says what holds each cell and its top kernels back, by the rules of rules.yaml, with the evidence."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from profzoo.tables import schemas
from profzoo.tables.schemas import CELL
from profzoo.verdicts import advice_scores, layer_verdicts, ncu_advice
from profzoo.verdicts.gain_models import CellSimulation
from profzoo.verdicts.launch_traits import mark_traits
from profzoo.verdicts.other_settings import other_setting_rows
from profzoo.verdicts.rule_evaluation import UNDECIDED, CellRules
from profzoo.verdicts.table_columns import COLUMNS
from profzoo.what_if.program import Program

NOTHING = "nothing stands out"
BY_PROFZOO = "profzoo"
CellKey = tuple[str, str]


def tabulate_verdicts(
    steps: pd.DataFrame,
    kernels: pd.DataFrame,
    roofline: pd.DataFrame | None,
    peaks: Mapping[str, float],
    advice: Mapping[CellKey, tuple[pd.DataFrame, pd.DataFrame]],
    ran_with: Mapping[CellKey, Mapping[str, Any]],
    given: Mapping[str, Any],
    layers: Mapping[CellKey, tuple[pd.DataFrame, pd.DataFrame]] | None = None,
    programs: Mapping[CellKey, Mapping[int, Program]] | None = None,
    scored: advice_scores.Scores | None = None,
) -> pd.DataFrame:
    """Tabulate verdicts (COLUMNS) on each cell, then its kernels, its layers and other settings, largest gain first.

    Args:
        steps, kernels, roofline: the tables of these names; verdicts that need counters are not given without roofline.
        peaks: rates by name, flop/s. advice: ncu's details page and the launches on it, by cell.
        ran_with: settings of each cell. given: rules, of rules.load_rules. layers: kernels by owning layer and the tree of
        layers, by cell. programs: traced steps of each cell, by process. scored: records of advice.

    `share` is the part of the unprofiled step that a row is about. A cell to which no rule applies has NOTHING; a cell
    whose evidence is below a floor has UNDECIDED. `limit` is the gain at which the CPU's launches limit the step.
    `method` says whether the gain was simulated or follows Amdahl's law; `score` says how right such advice has been
    on models that no rule was fitted to. `settings` are words for models.run.
    """
    rows = []
    for cell, step in steps.groupby(CELL, sort=False):
        # Of several processes the one that keeps its GPU busiest says what the cell is like.
        where = step.loc[step["busy_ns"].idxmax()]
        program = (programs or {}).get(cell, {}).get(int(where["process"]))
        replayed = CellSimulation(program, (scored or advice_scores.load_scores()).unrepeated) if program else None
        judged = CellRules(where, ran_with.get(cell, {}), given, peaks, replayed, scored)
        launches = schemas.rows_of_cell(kernels, *cell)
        mine = None if roofline is None else schemas.rows_of_cell(roofline, *cell)
        traits = mark_traits(launches, mine, given["traits"], peaks)
        counted = _undecided_without_counters(traits, given["floors"]["counted"])
        found = [*judged.of_step(), *judged.of_trace(), *judged.of_kernels(traits), *counted]
        # What cannot be told comes before what is worth less than it may be.
        found.sort(key=lambda row: -(row["gain"] or row.pop("potential", 1.0)))
        everything = found or [_nothing_row(where, roofline is not None)]
        own = judged.shares["kernels"]
        said = ncu_advice.tabulate_ncu_advice(*advice[cell], launches, own) if cell in advice else []
        of_layers = layer_verdicts.judge_top_layers(judged, *layers[cell], peaks) if layers and cell in layers else []
        others = other_setting_rows(judged, traits, everything)
        for group in (everything, judged.of_each(traits), of_layers, others, said):
            rows += [
                {"by": BY_PROFZOO, **dict(zip(CELL, cell, strict=True)), **row, "rank": rank}
                for rank, row in enumerate(group, 1)
            ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _undecided_without_counters(traits: pd.DataFrame, floor: float) -> Iterator[dict[str, Any]]:
    """That verdicts which need counters are not given, where some were collected but too few."""
    total = traits["total_ns"].sum()
    share = traits["counted_ns"].sum() / total if total else 1.0
    if 0 < share < floor:
        yield {
            "level": "cell", "verdict": UNDECIDED, "metric": "share of GPU time with counters", "value": share,
            "threshold": floor, "evidence": "roofline.csv: counted_share", "gain": None,
            "next_step": f"counters cover {share:.0%} of GPU time: raise ncu.budget or collect ncu.set roofline of all "
            "configurations",
        }  # fmt: skip


def _nothing_row(step: pd.Series, counted: bool) -> dict[str, Any]:
    more = "" if counted else ": collect ncu.set roofline to tell what bounds its kernels"
    return {"level": "cell", "verdict": NOTHING, "metric": "share of the step: busy", "value": step["busy_share"],
            "share": step["busy_share"], "evidence": "steps.csv: busy_share", "gain": 1.0,
            "next_step": f"the GPU is busy {step['busy_share']:.0%} of the step{more}"}  # fmt: skip
