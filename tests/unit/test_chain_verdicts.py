"""Verdicts on chains: named with layer and lines, with a gain by simulation, ranked beside the others."""

from typing import Any

import pandas as pd
import pytest

from profzoo.fusion import patterns, table
from profzoo.verdicts import chain_verdicts, fusion_table, verdicts
from profzoo.verdicts import rules as verdict_rules
from profzoo.what_if import storage
from tests.unit.test_fusion_costs import attention_cell
from tests.unit.test_verdicts import UNTRIED, kernel_rows
from tests.unit.test_verdicts import made as a_step

RULES = verdict_rules.load_rules()
CELL = ("m", "train")
__all__ = ["attention_cell"]


@pytest.fixture(scope="module")
def judged(attention_cell: Any) -> pd.DataFrame:
    """The verdicts on a cell with written-out attention in two layers."""
    chains, kernels, folder = attention_cell
    programs = {CELL: storage.read(folder / "p.npz")}
    (process,) = programs[CELL]
    step = a_step({}).assign(process=process)
    rows = kernel_rows(total_ns=[1e6])
    return verdicts.tabulate_verdicts(
        step, rows, None, {}, {}, {}, RULES, programs=programs, scored=UNTRIED, chains={CELL: (chains, kernels)}
    )


def test_attention_is_named_with_its_layers_lines_function_and_gain(judged: pd.DataFrame, attention_cell: Any) -> None:
    (row,) = judged[judged["verdict"] == "unfused attention"].to_dict("records")
    assert row["level"] == "cell" and row["method"] == "replay" and row["rank"] == 1
    assert row["next_step"].startswith("* (Attention, a.py:1-9) runs ")
    assert "torch.nn.functional.scaled_dot_product_attention" in row["next_step"]
    # Both layers and both passes together gain more than each row of the table.
    chains = attention_cell[0]
    own = chains[chains["pattern"] == "attention"]
    whole = 1 / (1 - (1 - 1 / own["gain"]).sum())
    assert row["gain"] == pytest.approx(whole, rel=0.02)
    assert row["share"] == pytest.approx(1 - 1 / row["gain"]) and row["share"] < 1
    assert row["gain_low"] < row["gain"] < row["gain_high"]


def test_a_verdict_needs_the_share_that_its_rule_asks_for(attention_cell: Any) -> None:
    chains, kernels, folder = attention_cell
    programs = {CELL: storage.read(folder / "p.npz")}
    strict = {**RULES, "rules": [{**rule, "at_least": 0.9} for rule in RULES["rules"]]}
    step = a_step({}).assign(process=next(iter(programs[CELL])))
    given = {"programs": programs, "scored": UNTRIED, "chains": {CELL: (chains, kernels)}}
    found = verdicts.tabulate_verdicts(step, kernel_rows(total_ns=[1e6]), None, {}, {}, {}, strict, **given)
    assert not found["verdict"].str.startswith("unfused").any()


def test_without_traced_steps_there_is_no_verdict_on_chains(attention_cell: Any) -> None:
    chains, kernels, _ = attention_cell
    found = verdicts.tabulate_verdicts(
        a_step({}),
        kernel_rows(total_ns=[1e6]),
        None,
        {},
        {},
        {},
        RULES,
        scored=UNTRIED,
        chains={CELL: (chains, kernels)},
    )
    assert not found["verdict"].str.startswith("unfused").any()


def test_every_pattern_has_one_rule_and_every_rule_a_pattern() -> None:
    rules = [rule for rule in verdict_rules.load_rules()["rules"] if rule["of"] == "chains"]
    shares = [rule["share"] for rule in rules]
    assert sorted(shares) == sorted(patterns.PATTERNS_OF_SHARE) and len(set(shares)) == len(shares)
    named = [name for names in patterns.PATTERNS_OF_SHARE.values() for name in names]
    assert len(set(named)) == len(named)
    assert all(rule["replay"] == "fused_chains" for rule in rules)


def test_the_table_has_the_advice_that_fits_the_cell() -> None:
    chains = table.CHAINS.empty().reindex(range(2)).assign(pattern=["looped optimizer", "elementwise chain"])
    found = fusion_table.add_advice(chains, {"compile": True, "optimizer": "auto"}, RULES)
    assert found["verdict"].tolist() == ["looped optimizer", "unfused elementwise chain"]
    assert found["settings"].tolist() == ["optimizer=fused", ""]
    assert "fused=True" in found["advice"][0] and "compile: true" not in found["advice"][1]
    plain = fusion_table.add_advice(chains, {}, RULES)
    assert plain["settings"].tolist() == ["optimizer=fused", "compile=true"]


def test_places_are_told_by_what_they_save() -> None:
    rows = pd.DataFrame(
        {
            "module": ["a", "b", "c", "d", "a"], "type": ["", "", "", "", ""], "source": [""] * 5, "ns": [5.0, 9, 8, 7, 4],
            "operators": ["mul"] * 5, "fused_ns": [4.0, 1, 1, 1, 1],
        }
    )  # fmt: skip
    assert chain_verdicts.describe_places(rows) == "b runs mul; c runs mul; d runs mul; and 1 more"
