"""Judges gradients that are sent in each backward pass although only their sum is used: no_sync is missing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from profzoo.verdicts.gain_models import SENT_ONCE, RequestedChange
from profzoo.verdicts.noted_verdicts import NOTED
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, CellRules
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.gradient_sends import count_sending_passes

if TYPE_CHECKING:
    from profzoo.cell.job_types import GradientSync

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
