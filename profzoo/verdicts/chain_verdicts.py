"""Judge the chains of a cell that fewer kernels could compute, by what fusing them would save of the step."""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from profzoo.fusion.joining import NUMBER
from profzoo.fusion.patterns import PATTERNS_OF_SHARE
from profzoo.fusion.wide_types import ENTRY
from profzoo.verdicts.gain_models import CHAINS, RequestedChange
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, CellRules
from profzoo.verdicts.rule_types import Rule
from profzoo.verdicts.verdict import Verdict

EVIDENCE = "fusion.csv: bytes, fused_bytes, ns, fused_ns"
# So many layers are named.
NAMED = 3
FUSED_NS = "fused_ns"


def judge_chains(judged: CellRules, found: tuple[pd.DataFrame, pd.DataFrame] | None) -> Iterator[Verdict]:
    """Yield verdicts by rules about chains; none without traced steps that can be simulated.

    found: rows of the cell's fusion.csv and of its fusion-kernels.csv; None without them.
    """
    chains, kernels = found or (pd.DataFrame({"pattern": []}), pd.DataFrame())
    for rule in judged.given["rules"]:
        if rule["of"] == "chains" and judged.replayed:
            rows = chains[chains["pattern"].isin(PATTERNS_OF_SHARE[rule["share"]])]
            if len(rows) and (row := _judge(judged, rule, rows, kernels)):
                yield row


def _judge(judged: CellRules, rule: Rule, rows: pd.DataFrame, kernels: pd.DataFrame) -> Verdict | None:
    assert judged.replayed
    asked = ask_fusion(rows, kernels, FUSED_NS)
    gain = judged.replayed.gain(asked, judged.step, 0.0)
    if gain is None or (share := 1 - 1 / gain.gain) < rule["at_least"]:
        return None
    row = replace(judged.row(rule, share, None, LAYER_LEVEL, EVIDENCE), level=CELL_LEVEL, change=asked)
    found = judged.expect(replace(row, lead=f"{describe_entry(rows)}{describe_places(rows)}: "))
    error = judged.scored.error(rule["verdict"])
    ends = [
        judged.replayed.gain(ask_fusion(rows, kernels, f"{FUSED_NS}_{end}"), judged.step, error)
        for end in ("low", "high")
    ]
    lows = [one.low for one in ends if one] + ([found.gain_low] if found.gain_low else [])
    highs = [one.high for one in ends if one] + ([found.gain_high] if found.gain_high else [])
    return replace(found, gain_low=min(lows), gain_high=max(highs)) if found.gain else found


def ask_fusion(rows: pd.DataFrame, kernels: pd.DataFrame, column: str) -> RequestedChange:
    """Return the change that fuses chains; column: which of the expected times their fused kernels take."""
    own = kernels[kernels[NUMBER].isin(rows["chain"])]
    return RequestedChange(CHAINS, own, fused=rows.set_index("chain")[column])


def describe_entry(rows: pd.DataFrame) -> str:
    """Return where double precision enters, by the first operator in it; empty for chains of other patterns.

    >>> describe_entry(pd.DataFrame({"pattern": [ENTRY], "module": ["a.0"], "type": ["A"], "source": ["m.py:2-9"],
    ...     "operators": ["mul x 2, add"]}))
    'fp64 enters in a.0 (A, m.py:2-9) at mul; '
    """
    first = rows[rows["pattern"] == ENTRY]
    if first.empty:
        return ""
    row = first.iloc[0]
    about = ", ".join(filter(None, (row["type"], row["source"])))
    operator = row["operators"].partition(",")[0].partition(" x ")[0]
    return f"fp64 enters in {row['module']}{f' ({about})' if about else ''} at {operator}; "


def describe_places(rows: pd.DataFrame) -> str:
    """Return where chains are, those first that save most: module, class with its source lines, and operators.

    >>> rows = pd.DataFrame({"module": ["blocks.*.attn", "(loss)"], "type": ["Attention", ""], "ns": [9.0, 2.0],
    ...     "source": ["model.py:10-32", ""], "operators": ["bmm, _softmax, bmm", "exp, sum"], "fused_ns": [4.0, 1.0]})
    >>> describe_places(rows)
    'blocks.*.attn (Attention, model.py:10-32) runs bmm, _softmax, bmm; (loss) runs exp, sum'
    """
    ordered = rows.assign(saved=rows["ns"] - rows[FUSED_NS]).sort_values("saved", ascending=False, kind="stable")
    told = ordered.drop_duplicates("module")
    parts = []
    for _, row in told.head(NAMED).iterrows():
        about = ", ".join(filter(None, (row["type"], row["source"])))
        parts.append(f"{row['module']}{f' ({about})' if about else ''} runs {shorten(row['operators'])}")
    more = len(told) - NAMED
    return "; ".join(parts) + (f"; and {more} more" if more > 0 else "")


def shorten(operators: str, most: int = 8) -> str:
    """Return the first operators of a list.

    >>> shorten("mul, add, tanh", 2)
    'mul, add and 1 more'
    """
    names = operators.split(", ")
    return operators if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"
