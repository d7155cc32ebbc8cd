"""Plans of a cell: what is possible, what is expected of it, in which order, what to type, and why not."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.plans import combinations, infeasible_settings, plan, plan_table, table_columns
from profzoo.plans.cell_plans import rank_plans
from profzoo.plans.infeasible_settings import IN_FORCE, OUTSIDE, find_contradiction, find_infeasible
from profzoo.plans.plan import Plan
from profzoo.tables import schemas
from profzoo.verdicts import table_columns as verdict_columns
from profzoo.verdicts import verdicts
from profzoo.verdicts.gain_models import RequestedChange
from profzoo.verdicts.other_settings import AdvisableSetting
from profzoo.what_if import predicted_gains, storage
from profzoo.what_if.program import Program
from tests import cpu_page, known_rules
from tests.recorded_results import _declared
from tests.unit.test_gain_models import CELL, LAUNCH, RULES, kernels, simulation, steps
from tests.unit.test_verdicts import ROOFS, UNTRIED, held
from tests.unit.test_verdicts import made as a_step
from tests.unit.test_wait_costs import line

STEP_CELLS = pd.DataFrame([{"model": CELL[0], "phase": CELL[1], "step_ns": 1e6, "arguments": "m train batch=4"}])


def resolved(cell: str = "lstm", phase: str = "train", **config: Any) -> Mapping[str, Any]:
    return settings.resolve_cell(cell, phase, "time", configuration.normalise_config(config))


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, float]:
    """Kernels of 40 us at 0.8 of the roof of SIMT: a CPU that launches every 7 us does not hold them back, casts would."""
    return simulation(steps([replace(LAUNCH, ns=4e4)] * 50), tmp_path_factory.mktemp("trace"))


def given(program: Program) -> tuple[dict[str, pd.DataFrame], Mapping[Any, Mapping[int, Program]]]:
    """The tables of its cell, and its program."""
    rows, number = kernels(program), storage.process_number(program.process)
    step = a_step({"idle_host": 0.2}).assign(process=number, queue_depth=0.0)
    tables = {
        "cells": STEP_CELLS,
        "steps": step,
        "kernels": rows,
        "roofline": held([0.8] * len(rows), ["simt"] * len(rows)),
    }
    programs = {CELL: {number: program}}
    judged = verdicts.tabulate_verdicts(
        step, rows, tables["roofline"], ROOFS, {}, {}, RULES, None, programs, scored=UNTRIED
    )
    return {**tables, "verdicts": judged}, programs


def planned(program: Program, ran_with: Mapping[str, Any], lines: Any = None) -> pd.DataFrame:
    tables, programs = given(program)
    waits = None if lines is None else {CELL: lines}
    return plan_table.tabulate_plans(tables, ROOFS, {CELL: ran_with}, RULES, programs, waits, UNTRIED)


def test_the_best_plan_is_the_combination_that_gains_most(limited: tuple[Program, float]) -> None:
    """Kernels take 10.5 us in bf16, and two casts of 3 us; with 1 us between them in a graph, which waits for no CPU."""
    program, step_ns = limited
    found = planned(program, {}).set_index("settings")
    best = found.iloc[0]
    assert best.name == "graph=true precision=bf16" and best["rank"] == 1
    assert best["gain"] == pytest.approx(step_ns / (50 * (8e3 + 2.5e3 + 6e3 + 1e3)), rel=0.05)
    assert best["gain_low"] < best["gain"] < best["gain_high"]
    # Neither alone gains as much, nor do both gains multiplied.
    graph, bf16 = found.loc["graph=true"], found.loc["precision=bf16"]
    assert max(graph["gain"], bf16["gain"], 1) < best["gain"]
    assert graph["gain"] * bf16["gain"] < 0.95 * best["gain"]
    assert (best["verdicts"], best["method"]) == ("launch-bound + memory-bound", "replay")
    assert best["evidence"].startswith("program.npz: simulated graph + bf16")
    assert "verdicts.csv: launch-bound (rank" in graph["evidence"] and graph["advised"] and not best["advised"]
    assert best["changes"] == "launch the whole step as one CUDA graph; compute in bf16 where autocast does"
    assert (
        best["command"]
        == "snakemake compare --config models='{m: {batch: 4}}' phases=train tool=time candidate=graph+bf16"
    )
    # Two precisions exclude each other.
    assert not [words for words in found.index if words.count("precision=") > 1]
    possible = found[found["not_possible"] == ""]
    assert list(possible["rank"]) == list(range(1, len(possible) + 1))


def test_what_is_not_possible_is_in_no_plan_and_has_its_reason(limited: tuple[Program, float]) -> None:
    why = "the step waits for the GPU 62 times per step (.item() at train.py:84, 62 times per step)"
    found = planned(limited[0], {}, [line(calls=62)]).set_index("settings")
    assert [words for words in found.index if "graph" in words] == ["graph=true"]
    row = found.loc["graph=true"]
    assert (row["not_possible"], row["outlook"], row["command"]) == (why, plan.NOT_POSSIBLE, "") and pd.isna(
        row["gain"]
    )
    assert row["rank"] == len(found)
    assert found.iloc[0].name == "precision=tf32" and found.iloc[0]["not_possible"] == ""


@pytest.mark.parametrize(
    ("ran_with", "word", "why"),
    [
        (lambda: resolved(gpus=2, device="cuda"), "graph=true", "graph: true is for one GPU, not 2"),
        (lambda: resolved("lstm@graph"), "graph=true", IN_FORCE),
        (lambda: resolved("lstm@fp16"), "graph=true", "graph: true and precision: fp16 train with optimizer: fused only"),
        (lambda: resolved(device="cpu"), "graph=true", "captures CUDA graphs, which a CPU has none of"),
        (lambda: resolved("lstm@bf16"), "precision=bf16", IN_FORCE),
        (lambda: resolved("lstm@graph"), "checkpoint=true", "checkpoint: true and graph: true cannot be combined"),
        (lambda: resolved(), "graph=true", None),
        (lambda: {}, "graph=true", None),
    ],
)  # fmt: skip
def test_settings_that_a_cell_cannot_have(ran_with: Any, word: str, why: str | None) -> None:
    found = find_infeasible(ran_with(), [word, "workers=3"])
    assert (why in found[word] if why else found == {}) and "workers=3" not in found


def test_settings_of_a_script_are_those_that_can_be_applied_from_outside() -> None:
    cell = resolved("mine", settings={"mine": {"command": "python train.py"}})
    assert find_infeasible(cell, ["graph=true", "precision=bf16", "batch=8"]) == {
        "graph=true": OUTSIDE,
        "batch=8": OUTSIDE,
    }


def test_settings_that_contradict_each_other_are_no_plan(limited: tuple[Program, float]) -> None:
    """Each alone may be set, and both together not."""
    cell = resolved(phases=["train"])
    assert find_contradiction(cell, "graph=true") is None and find_contradiction(cell, "checkpoint=true") is None
    assert "cannot be combined" in str(find_contradiction(cell, "graph=true checkpoint=true"))
    # Of a cell in fp16, for whose graph no optimizer is fused.
    found = planned(limited[0], {**cell, "precision": "fp16"}).set_index("settings")
    assert "fp16" in found.loc["graph=true", "not_possible"]


def test_a_cell_that_runs_with_a_setting_has_plans_with_the_others(limited: tuple[Program, float]) -> None:
    found = planned(limited[0], resolved("lstm@graph")).set_index("settings")
    assert found.loc["graph=true", "not_possible"] == IN_FORCE
    assert not [words for words in found.index[found["not_possible"] == ""] if "graph" in words]


def a_plan(words: str, gain: float, outlook: str = plan.HELPS) -> Plan:
    return Plan(words, "", gain, outlook=outlook)


def test_settings_that_add_nothing_come_after_plans_without_them() -> None:
    ranked = rank_plans([a_plan("a=1", 1.5), a_plan("a=1 b=2", 1.52), a_plan("c=1", 1.3), a_plan("a=1 c=1", 1.6),
                         a_plan("d=1", 9.0, plan.ABSTAINS), a_plan("b=2", 0.9, plan.DOES_NOT_HELP)])  # fmt: skip
    assert [one.settings for one in ranked] == ["a=1 c=1", "a=1", "c=1", "d=1", "a=1 b=2", "b=2"]


def a_setting(words: str) -> AdvisableSetting:
    return AdvisableSetting(f"because of {words}", words, words, RequestedChange(words), "")


def test_all_pairs_are_searched_and_larger_combinations_as_long_as_they_gain() -> None:
    """Each of five settings makes the step 1.2 times as fast, but for two that take the key of another and one of no use."""
    known = [a_setting(words) for words in ("a=1", "b=1", "c=1", "a=2", "d=1")]
    asked: list[str] = []

    def predict(chosen: combinations.Settings) -> predicted_gains.Gain | None:
        words = combinations.join_words(chosen)
        asked.append(words)
        gain = 1.2 ** len([one for one in chosen if one.words != "d=1"])
        return None if "b=1" in words and "a=2" in words else predicted_gains.Gain(1.0, 1 / gain, gain, gain, gain)

    found = {combinations.join_words(chosen): gain.gain for chosen, gain in
             combinations.search_combinations(known, predict, lambda chosen: "c=1" not in combinations.join_words(chosen) or len(chosen) < 4)}  # fmt: skip
    assert max(found, key=lambda words: found[words]) == "a=1 b=1 c=1" and found["a=1 b=1 c=1"] == pytest.approx(1.2**3)
    assert len(asked) == len(set(asked)) and not any("a=1" in words and "a=2" in words for words in asked)
    assert {"a=1 b=1", "a=1 c=1", "a=1 d=1", "b=1 c=1", "b=1 d=1", "c=1 d=1", "c=1 a=2", "a=2 d=1"} <= set(found)
    # Nothing is known of what includes these two.
    assert "b=1 a=2" in asked and "b=1 a=2" not in found


def test_the_table_is_read_back_as_it_was_written(limited: tuple[Program, float], tmp_path: Path) -> None:
    """From files, as the rule has it: tables, a sidecar with the settings, traced steps."""
    tables, programs = given(limited[0])
    kinds = {**schemas.TABLES, "verdicts": verdict_columns.VERDICTS_TABLE}
    paths = {name: str(tmp_path / f"{name}.csv") for name in tables}
    for name, table in tables.items():
        write_csv(_declared(table, kinds[name]), paths[name])
    home = tmp_path / CELL[0]
    home.mkdir()
    sidecar, program = home / "train.time.csv.json", home / "train.program.npz"
    write_json({"cell": {"graph": True}}, sidecar)
    storage.write(list(programs[CELL].values()), program)
    plan_table.main(paths, None, [str(sidecar)], [str(program)], str(tmp_path / "plans.csv"))
    found = reading.read(tmp_path / "plans.csv", table_columns.PLANS_TABLE).set_index("settings")
    assert found.loc["graph=true", "not_possible"] == IN_FORCE and "precision=tf32" in found.index
    assert found["rank"].tolist() == list(range(1, len(found) + 1))


def test_a_cell_on_a_cpu_has_the_plans_of_its_verdicts() -> None:
    tables = cpu_page.tables()
    advised = tables["verdicts"].assign(settings="")
    mine = (advised["level"] == "cell") & (advised["phase"] == "train")
    advised.loc[mine & (advised.index == advised.index[mine][0]), ["settings", "gain", "gain_low", "gain_high"]] = [
        "workers=2", 1.3, 1.0, 1.3]  # fmt: skip
    chosen = {name: tables[name] for name in ("cells", "steps")} | {
        "verdicts": advised, "kernels": pd.DataFrame(columns=list(schemas.TABLES["kernels"].columns))}  # fmt: skip
    found = plan_table.tabulate_plans(chosen, {}, {("m", "train"): {"workers": 0}}, known_rules.load(), {})
    (row,) = found.to_dict("records")
    assert (row["settings"], row["gain"], row["method"]) == ("workers=2", 1.3, "Amdahl")
    # Its gain is a limit, so that it may not help at all.
    assert row["outlook"] == plan.MAY_NOT_HELP and row["changes"] == "load batches in 2 worker processes"
    assert cpu_page.of_gpus(" ".join(str(value) for value in row.values())) == []


def test_settings_have_the_types_of_the_schema() -> None:
    assert infeasible_settings.parse_typed("precision=bf16 batch=8 compile=true") == {
        "precision": "bf16", "batch": 8, "compile": True}  # fmt: skip
