"""Judges convolutions for whose new shapes a library looks for an algorithm again, by the host's time for it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pandas as pd

from profzoo.range_names import STEP
from profzoo.verdicts.noted_verdicts import NOTED
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, CellRules
from profzoo.verdicts.verdict import Verdict

TUNING = "tuning"
CONVOLUTIONS = r"aten::(cudnn|miopen)_convolution|aten::convolution_backward"
# A call of so many times the usual duration does more than launch kernels.
LONGER = 10.0
# Columns of the activities of torch.profiler.
COUNT, HOST, SHAPES = "count", "cpu_ns", "shapes"
EVIDENCE = "torch.csv: cpu_ns of convolutions, by shapes"


@dataclass(frozen=True)
class Tuning:
    """Host time per step beyond what convolutions usually take, in ns; and the operator and shapes that take most."""

    ns: float
    operator: str
    shapes: str


def find_tuning(activities: pd.DataFrame) -> Tuning | None:
    """Return what convolutions take for shapes that only some of the traced steps have; None if it is nothing.

    activities: of torch.profiler, a row per operator and shapes of its inputs. A shape that all steps have was tuned
    for in the warm-up.

    >>> rows = pd.DataFrame({"kind": ["operator", "operator", "range"], "count": [1, 9, 2], "cpu_ns": [5e7, 9e5, 6e7],
    ...     "name": ["aten::cudnn_convolution", "aten::cudnn_convolution", "step"], "shapes": ["a", "b", ""]})
    >>> find_tuning(rows)
    Tuning(ns=24950000.0, operator='aten::cudnn_convolution', shapes='a')
    """
    steps = activities.loc[(activities["kind"] == "range") & (activities["name"] == STEP), COUNT].max()
    mine = activities[(activities["kind"] == "operator") & activities["name"].str.match(CONVOLUTIONS)]
    mine = mine[mine[COUNT].gt(0) & mine[HOST].notna()]
    if mine.empty or not steps > 1:
        return None
    each = mine[HOST] / mine[COUNT]
    # Of the calls of each operator, the median.
    usual = mine["name"].map({name: own.repeat(mine.loc[own.index, COUNT].astype(int)).median()
                              for name, own in each.groupby(mine["name"])})  # fmt: skip
    usual = usual.clip(upper=each.min() * LONGER)
    tuned = mine[(mine[COUNT] < steps) & (each >= LONGER * usual)]
    if tuned.empty:
        return None
    beyond = tuned[HOST] - usual[tuned.index] * tuned[COUNT]
    most = tuned.loc[beyond.idxmax()]
    return Tuning(float(beyond.sum() / steps), str(most["name"]), str(most[SHAPES]))


def judge_tuning(judged: CellRules, activities: pd.DataFrame | None) -> Iterator[Verdict]:
    """Yield the verdict on tuning for new shapes: the host's time for it, as far as the GPU is idle meanwhile."""
    found = None if activities is None else find_tuning(activities)
    for rule in judged.given["rules"]:
        if rule["of"] != NOTED or rule["share"] != TUNING or found is None:
            continue
        # Tuning is of a step as most are.
        share = min(found.ns, float(judged.step["idle_ns"])) / float(judged.step["step_median_ns"])
        if share >= rule["at_least"]:
            row = judged.row(rule, share, None, LAYER_LEVEL, EVIDENCE)
            lead = f"{found.operator} of {shorten_shapes(found.shapes)}, a shape that not every step has: "
            yield judged.expect(replace(row, level=CELL_LEVEL, lead=lead))


def shorten_shapes(shapes: str) -> str:
    """Return the shapes of input and weight.

    >>> shorten_shapes("[[16, 3, 84, 84], [64, 3, 7, 7], [], []]")
    '[16, 3, 84, 84] and [64, 3, 7, 7]'
    """
    parts = [f"{part.strip(' [],')}" for part in shapes.split("],")]
    return " and ".join(f"[{part}]" for part in parts if part)
