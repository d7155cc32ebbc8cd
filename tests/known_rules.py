"""The shipped rules for verdicts that tests know, whatever has been added to them since."""

from dataclasses import replace
from typing import Any

import pandas as pd

from profzoo.verdicts.rules import rules
from profzoo.verdicts.rules.rule_types import Rules
from profzoo.verdicts.verdict import UNDECIDED, Verdict

# Verdicts of the known rules: those that most tests look at, and the others.
VERDICTS = (
    "input-bound", "synchronisation-bound", "launch-bound", "transfer-bound", "copy-bound", "communication-bound",
    "imbalance-bound", "latency-bound (short kernels)", "latency-bound (small grid)", "memory-bound",
    "compute-bound (SIMT)", "compute-bound (tensor)", "latency-bound (occupancy, tail)", "uncoalesced access",
    "bank conflicts", "register spills", "tail of the last wave", "L2 thrashing", "off tensor cores", "full precision",
    "double precision", "changes of layout", "redundant casts", "stalled on memory", "stalled on shared memory",
    "stalled at barriers", "stalled on arithmetic", "allocator stalls", "work beyond need",
    "operator-bound", "overhead-bound",
)  # fmt: skip
OTHERS = (
    "GPUs in turn", "GIL contention", "host work", "code loading within the window", "pageable copies",
    "values read for logging", "padded batches", "recompilation", "graph breaks", "repeated work", "time in guards",
    "restarted workers",
    "tuning for changing shapes", "allocator retries", "fragmented memory", "repeated gradient synchronisation",
    "discarded gradients", "recomputed activations", "generation without a cache", "copied cache", "dense graph product",
    "accidental double precision", "looped small batches", "looped time steps", "autocast casts", "unfused attention",
    "unfused loss", "unfused softmax", "unfused normalisation", "unfused activation", "unfused rotary embedding",
    "looped experts", "looped heads", "repeated weight casts", "one-hot product", "looped optimizer",
    "unfused optimizer", "looped weight average", "looped gradient norms", "unfused elementwise chain",
)  # fmt: skip


def load(every: bool = False) -> Rules:
    """Return the content of rules.yaml with only the rules of VERDICTS, or with every known rule; each must exist.

    A second rule with a known verdict about the same part of the step has been added, and is left out.
    """
    content, known = rules.load_rules(), (*VERDICTS, *(OTHERS if every else ()))
    first = {(rule["of"], rule["verdict"]): rule for rule in reversed(content["rules"]) if rule["verdict"] in known}
    kept = [rule for rule in content["rules"] if first.get((rule["of"], rule["verdict"])) is rule]
    assert {rule["verdict"] for rule in kept} == {*known}
    named = [
        {
            **one,
            **{
                key: [name for name in one[key] if name in (*known, UNDECIDED)]
                for key in ("by", "explains")
                if key in one
            },
        }
        for one in content["explanations"]
    ]
    explained = [one for one in named if one["explains"] and one.get("by", True)]
    return {**content, "explanations": explained, "rules": kept}


def keep_to_amdahl(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return a table of verdicts of which none promises more than its share of the step allows."""
    known = verdicts[verdicts["share"].notna() & verdicts["gain"].notna()]
    assert (known["gain"] * (1 - known["share"]) <= 1 + 1e-9).all(), known[["verdict", "share", "gain"]]
    return verdicts


def a_verdict(name: str, **given: Any) -> Verdict:
    """Return a verdict on a cell; tests give the values that matter to them."""
    plain = Verdict(level="cell", verdict=name, metric="share", value=0.5, evidence="steps.csv", next_step="do")
    return replace(plain, **given)
