"""Judges modules that a step calls again on the same inputs, by the time of their forward pass in tables of layers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.range_names import COMPILED, ROOT
from profzoo.tables.step_shares import amdahl
from profzoo.verdicts.gain_methods import AMDAHL
from profzoo.verdicts.noted_verdicts import NOTED, REPEATED, make_row
from profzoo.verdicts.rule_evaluation import CellRules
from profzoo.verdicts.rule_types import KnownSettings, Rule
from profzoo.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from profzoo.cell.job_types import RepeatedCall

FORWARD = "forward"
# So many modules, and lines of each, are named.
NAMED = 3


def judge_repeated(
    judged: CellRules, found: "Sequence[RepeatedCall]", tree: pd.DataFrame | None, total: float
) -> Iterator[Verdict]:
    """Yield the verdict on repeated calls of a cell on a GPU, whose launches take neither GPU time nor launch time.

    found: modules that were called again. tree: the cell's layers.csv, None without it. total: GPU time of the cell's
    kernels per step, in ns.
    """
    if not found or tree is None:
        return
    forward = tree[tree["direction"] == FORWARD].drop_duplicates("module").set_index("module")
    again = {one["module"]: one for one in found if one["module"] in forward.index}
    rows = forward.loc[list(again)]
    parts = [repeated_part(one["calls"], float(rows.at[name, "calls"])) for name, one in again.items()]
    gone = rows[["total_ns", "launches"]].mul(parts, axis=0).sum()
    gain = float(judged.most(gone.to_frame().T, total).iloc[0]) if len(rows) else 1.0
    yield from _judge(judged.given["rules"], list(again.values()), 1 - 1 / gain, judged.ran_with)


def judge_repeated_on_cpu(
    rules: Sequence[Rule],
    found: "Sequence[RepeatedCall]",
    operators: pd.DataFrame,
    times: Mapping[str, float],
    ran_with: KnownSettings,
) -> Iterator[Verdict]:
    """Yield the same for a cell on a CPU; operators: its layer-operators.csv. times: its step by part, in ns."""
    forward, whole = operators[operators["direction"] == FORWARD], sum(times.values())
    if not found or not whole:
        return
    sums = [forward.loc[belongs_to(forward["module"], one["module"]), "total_ns"].sum() for one in found]
    gone = sum(own * repeated_part(one["calls"], one["calls"]) for own, one in zip(sums, found, strict=True))
    yield from _judge(rules, found, min(gone / whole, 1.0), ran_with)


def repeated_part(same: int, calls: float) -> float:
    """Return the part of a module's calls that is not needed; same: calls with equal inputs. calls: all per step.

    >>> repeated_part(2, 2.0), repeated_part(2, 4.0), repeated_part(3, float("nan"))
    (0.5, 0.25, 0.6666666666666666)
    """
    return (same - 1) / max(same, calls) if calls == calls else (same - 1) / same


def belongs_to(modules: pd.Series, name: str) -> pd.Series:
    """Return whether each module is the named one or lies within it.

    >>> belongs_to(pd.Series(["(root)", "a", "a.0", "ab", "(loss)"]), "a").tolist()
    [False, True, True, False, False]
    >>> belongs_to(pd.Series(["(root)", "a", "a.0", "ab", "(loss)"]), "(root)").tolist()
    [True, True, True, True, False]
    """
    if name == ROOT:
        return ~modules.str.startswith("(") | modules.isin((ROOT, COMPILED))
    return (modules == name) | modules.str.startswith(f"{name}.")


def describe_calls(found: "Sequence[RepeatedCall]") -> str:
    """Describe modules that are called again, and where.

    >>> describe_calls([{"module": "encoder", "type": "ResNet", "calls": 2, "places": ["train.py:8", "train.py:9"]}])
    'encoder (ResNet) is called 2 times on the same inputs, with the same result (train.py:8, train.py:9)'
    """
    told = []
    for one in found[:NAMED]:
        places = f" ({', '.join(one['places'][:NAMED])})" if one["places"] else ""
        told.append(
            f"{one['module']} ({one['type']}) is called {one['calls']} times on the same inputs, with the same "
            f"result{places}"
        )
    more = len(found) - NAMED
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def _judge(
    rules: Sequence[Rule], found: "Sequence[RepeatedCall]", share: float, ran_with: KnownSettings
) -> Iterator[Verdict]:
    for rule in rules:
        if rule["of"] == NOTED and rule["share"] == REPEATED and share >= rule["at_least"]:
            gain = amdahl(share, 1)
            row = make_row(rule, share, f"{describe_calls(found)}: ", ran_with)
            yield replace(row, share=share, cured=1.0, gain=gain, gain_low=1.0, gain_high=gain, method=AMDAHL)
