"""Says what holds each cell and its top kernels back, by the rules of rules.yaml, with the evidence."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from profzoo.tables import schemas
from profzoo.tables.schemas import CELL
from profzoo.verdicts import advice_scores, layer_verdicts, ncu_advice
from profzoo.verdicts.gain_models import Replayed
from profzoo.verdicts.launch_traits import mark_traits
from profzoo.verdicts.other_settings import other_setting_rows
from profzoo.verdicts.rule_evaluation import UNDECIDED, CellRules
from profzoo.verdicts.table_columns import COLUMNS
from profzoo.what_if.program import Program

NOTHING = "nothing stands out"
OURS = "profzoo"
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
    """COLUMNS: the verdicts of each cell, largest gain first, of its kernels, of its layers, then of other settings.

    Args:
        steps, kernels, roofline: the tables of these names; without roofline, verdicts that need counters are not
            given. peaks: rates by name, flop/s. advice: ncu's details page and the launches on it, by cell.
        ran_with: settings of each cell, so that none is advised what it does already.
        given: as rules.load has them. layers: kernels by owner and the tree of layers, by cell, where these are known;
        programs: of its traced steps, by process. scored: how right advice has been; by default what is recorded.

    `share` is the part of the unprofiled step that a row is about, empty where it is about none. A cell to which no
    rule applies has NOTHING, one whose evidence is below a floor UNDECIDED with the reason. `limit` is the gain at
    which the CPU, which has launches to make, holds the step back. `method` says whether the expected gain is of the
    traced steps run again, or by Amdahl's law; `score` and the numbers before it how right such advice has been on
    models that no rule was fitted to. `settings`, in the words of models.run, follow the advice at once.
    """
    rows: list[dict[str, Any]] = []
    for cell, step in steps.groupby(CELL, sort=False):
        # Of several processes the one that keeps its GPU busiest says what the cell is like.
        where = step.loc[step["busy_ns"].idxmax()]
        program = (programs or {}).get(cell, {}).get(int(where["process"]))
        replayed = Replayed(program, (scored or advice_scores.load()).unrepeated) if program else None
        judged = CellRules(where, ran_with.get(cell, {}), given, peaks, replayed, scored)
        launches = schemas.rows_of_cell(kernels, *cell)
        mine = None if roofline is None else schemas.rows_of_cell(roofline, *cell)
        traits = mark_traits(launches, mine, given["traits"], peaks)
        found = [*judged.of_step(), *judged.of_trace(), *judged.of_kernels(traits)]
        found += _uncounted(traits, given["floors"]["counted"])
        # What cannot be told comes before what is worth less than it may be.
        everything = sorted(found, key=lambda row: -(row["gain"] or row.pop("potential", 1.0)))
        everything = everything or [_nothing(where, roofline is not None)]
        said = (
            ncu_advice.tabulate_ncu_advice(*advice[cell], launches, judged.shares["kernels"]) if cell in advice else []
        )
        of_layers = layer_verdicts.judge_top_layers(judged, *layers[cell], peaks) if layers and cell in layers else []
        for group in (
            everything,
            judged.of_each(traits),
            of_layers,
            other_setting_rows(judged, traits, everything),
            said,
        ):
            rows += [
                {"by": OURS, **dict(zip(CELL, cell, strict=True)), **row, "rank": rank}
                for rank, row in enumerate(group, 1)
            ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _uncounted(traits: pd.DataFrame, floor: float) -> Iterator[dict[str, Any]]:
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


def _nothing(step: pd.Series, counted: bool) -> dict[str, Any]:
    more = "" if counted else ": collect ncu.set roofline to tell what bounds its kernels"
    return {"level": "cell", "verdict": NOTHING, "metric": "share of the step: busy", "value": step["busy_share"],
            "share": step["busy_share"], "evidence": "steps.csv: busy_share", "gain": 1.0,
            "next_step": f"the GPU is busy {step['busy_share']:.0%} of the step{more}"}  # fmt: skip
