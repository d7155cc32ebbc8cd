"""Plans of a cell: what is possible, what is expected of it, in which order, what to type, and why not."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.plans import cell_plans, plan, plan_table
from profzoo.plans.cell_plans import rank_plans
from profzoo.plans.plan import IN_FORCE, OUTSIDE, Plan, find_contradiction, find_infeasible
from profzoo.tables import schemas
from profzoo.trials import trial_table
from profzoo.verdicts import verdict as verdict_columns
from profzoo.verdicts.advice_scores import Score, Scores
from profzoo.verdicts.causes import verdicts
from profzoo.verdicts.gain_models import RequestedChange
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.cell_facts import CellFacts, NotedFacts
from profzoo.verdicts.rules.rule_evaluation import AdvisableSetting
from profzoo.what_if import predicted_gains
from profzoo.what_if.loading import Loading
from profzoo.what_if.program import Program, process_number, write_programs
from tests import cpu_page, known_rules, simulated_waits
from tests.benchmarks import recorded_cells
from tests.recorded_results import _declared
from tests.simulated import Act
from tests.unit.test_gain_models import CELL, LAUNCH, kernels, loaded, simulation, steps
from tests.unit.test_host_pauses import name_memory
from tests.unit.test_verdicts import PLAIN, ROOFS, UNTRIED, held
from tests.unit.test_verdicts import made as a_step
from tests.unit.test_wait_costs import line

STEP_CELLS = pd.DataFrame([{"model": CELL[0], "phase": CELL[1], "step_ns": 1e6, "arguments": "m train batch=4"}])


def resolved(cell: str = "lstm", phase: str = "train", **config: Any) -> Mapping[str, Any]:
    return settings.resolve_cell(cell, phase, "time", configuration.normalise_config(config))


Tables = tuple[dict[str, pd.DataFrame], Mapping[Any, Mapping[int, Program]], float]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Tables of a cell, its program, and ns of its step.

    Kernels of 40 us at 0.8 of the roof of SIMT: a CPU that launches every 7 us does not hold them back, casts would.
    """
    program, step_ns = simulation(steps([replace(LAUNCH, ns=4e4)] * 40, 3), tmp_path_factory.mktemp("trace"))
    rows, number = kernels(program), process_number(program.process)
    step = a_step({"idle_host": 0.2}).assign(process=number, queue_depth=0.0)
    roofs, programs = held([0.8] * len(rows), ["simt"] * len(rows)), {CELL: {number: program}}
    judged = verdicts.tabulate_verdicts(step, rows, roofs, ROOFS, {}, {}, PLAIN, None, programs, scored=UNTRIED)
    tables = {"cells": STEP_CELLS, "steps": step, "kernels": rows, "roofline": roofs}
    return {**tables, "verdicts": judged}, programs, step_ns


def planned(limited: Tables, ran_with: Mapping[str, Any], lines: Any = None, **failed: str) -> pd.DataFrame:
    """failed: why settings failed, by their words with an underscore between them."""
    tables, programs, _ = limited
    waits, known = (
        None if lines is None else {CELL: lines},
        {words.replace("_", " "): failed[words] for words in failed},
    )
    return plan_table.tabulate_plans(tables, ROOFS, {CELL: ran_with}, PLAIN, programs, waits, UNTRIED, {CELL: known})


def test_a_plan_with_workers_has_as_many_as_the_step_needs(tmp_path: Path) -> None:
    """And it says so: three load 1.5 ms in the 0.7 of the GPU, which the copy and ten kernels take all the same."""
    program, step_ns = loaded(tmp_path)
    rows, number = kernels(program), process_number(program.process)
    step = a_step({"idle_input": 0.5}).assign(process=number, queue_depth=0.0, cpu_data_ns=5e6)
    tables = {"cells": STEP_CELLS, "steps": step, "kernels": rows}
    noted = {CELL: NotedFacts(loading=Loading(cores=8.0))}
    given = ROOFS, {CELL: {}}, PLAIN
    judged = verdicts.tabulate_verdicts(step, rows, None, ROOFS, {}, {}, PLAIN, scored=UNTRIED)
    found = plan_table.tabulate_plans(
        {**tables, "verdicts": judged}, *given, {CELL: {number: program}}, scored=UNTRIED, noted=noted
    )
    own = found.set_index("settings").loc["workers=3 pin_memory=true"]
    assert own["gain"] == pytest.approx(step_ns / 7.12e5, rel=0.01)
    said = "(loading a batch takes 1.5 ms and the rest of the step 712 µs, so input no longer limits from 3 workers on)"
    assert said in own["evidence"] and "variants='{changed: {workers: 3, pin_memory: true}}'" in own["command"]


def test_the_best_plan_is_the_combination_that_gains_most(limited: Tables) -> None:
    """Kernels take 10.5 us in bf16, and two casts of 3 us; with 1 us between them in a graph, which waits for no CPU."""
    step_ns = limited[2]
    found = planned(limited, {}).set_index("settings")
    best = found.iloc[0]
    assert best.name == "graph=true precision=bf16" and best["rank"] == 1
    assert best["gain"] == pytest.approx(step_ns / (40 * (8e3 + 2.5e3 + 6e3 + 1e3)), rel=0.05)
    assert best["gain_low"] < best["gain"] < best["gain_high"]
    # Neither alone gains as much, nor do both gains multiplied.
    graph, bf16 = found.loc["graph=true"], found.loc["precision=bf16"]
    assert max(graph["gain"], bf16["gain"], 1) < best["gain"]
    assert graph["gain"] * bf16["gain"] < 0.95 * best["gain"]
    assert (best["verdicts"], best["method"]) == ("launch-bound + memory-bound", "replay")
    assert best["evidence"].startswith("program.npz: simulated graph + bf16")
    assert "verdicts.csv: launch-bound (rank" in graph["evidence"] and graph["advised"] and not best["advised"]
    assert best["changes"] == "launch the whole step as one CUDA graph; compute in bf16 where autocast does"
    command = "snakemake compare --config models='{m: {batch: 4}}' phases=train tool=time candidate=graph+bf16"
    assert best["command"] == command
    # Two precisions exclude each other.
    assert not [words for words in found.index if words.count("precision=") > 1]
    possible = found[found["not_possible"] == ""]
    assert list(possible["rank"]) == list(range(1, len(possible) + 1))


def test_a_plan_says_what_to_write_in_a_script_and_where(limited: Tables) -> None:
    """Also what only the script itself can do; what it cannot do has no recipe."""
    made: Any = [{"kind": "call", "name": "", "file": "train.py", "line": 30}]
    tables, programs, _ = limited
    found, table = {}, plan_table.tabulate_plans
    for failed in ({}, {"precision=tf32": "out of memory"}):
        noted, ran_with = {CELL: NotedFacts(made=made)}, {"command": "python train.py"}
        rows = table(tables, ROOFS, {CELL: ran_with}, PLAIN, programs, None, UNTRIED, {CELL: failed}, None, noted)
        found[bool(failed)] = rows.set_index("settings")
    assert found[False].loc["precision=bf16", "recipe"] == 'train.py:30: torch.autocast("cuda", torch.bfloat16)'
    assert found[False].loc["precision=tf32", "recipe"] == 'torch.set_float32_matmul_precision("high")'
    graph = found[False].loc["graph=true"]
    assert (
        graph["recipe"] == "train.py:30: with torch.cuda.graph(graph): step()"
        and "only a script" in graph["not_possible"]
    )
    assert "out of memory" in found[True].loc["precision=tf32", "not_possible"]
    assert found[True].loc["precision=tf32", "recipe"] == ""


def test_what_is_not_possible_is_in_no_plan_and_has_its_reason(limited: Tables) -> None:
    why = "the step waits for the GPU 62 times per step (.item() at train.py:84, 62 times per step)"
    found = planned(limited, {}, [line(calls=62)]).set_index("settings")
    assert [words for words in found.index if "graph" in words] == ["graph=true"]
    row = found.loc["graph=true"]
    assert (row["not_possible"], row["outlook"], row["command"]) == (why, plan.NOT_POSSIBLE, "")
    assert row["rank"] == len(found) and pd.isna(row["gain"])
    assert found.iloc[0].name == "precision=tf32" and found.iloc[0]["not_possible"] == ""


def test_settings_that_failed_in_a_trial_are_in_no_plan_and_say_so(limited: Tables) -> None:
    """Alone, or only where both of them are there; and no verdict advises them."""
    why = "m train failed with RuntimeError: no kernel (m.py:3)"
    found = planned(limited, {}, **{"precision=bf16": why}).set_index("settings")
    assert [words for words in found.index if "bf16" in words] == ["precision=bf16"]
    row = found.loc["precision=bf16"]
    assert row["not_possible"] == f"it failed in a trial: {why}" and row["rank"] == len(found)
    assert "precision=tf32" in found.iloc[0].name and found.iloc[0]["not_possible"] == ""
    found = planned(limited, {}, **{"graph=true_precision=bf16": why}).set_index("settings")
    assert {"graph=true", "precision=bf16"} <= {*found.index[found["not_possible"] == ""]}
    assert found.loc["graph=true precision=bf16", "not_possible"] == f"it failed in a trial: {why}"
    tables, programs, _ = limited
    given = tables["steps"], tables["kernels"], tables["roofline"], ROOFS, {}, {}, PLAIN, None, programs
    for failed in ({}, {"graph=true": why}):
        judged = verdicts.tabulate_verdicts(*given, scored=UNTRIED, facts=CellFacts(failed={CELL: failed}))
        (row,) = judged[(judged["verdict"] == "launch-bound") & (judged["level"] == "cell")].to_dict("records")
        said = (
            f"a CUDA graph (graph: true) is not possible, as it failed in a trial: {why}: mend that first; until then "
        )
        assert row["next_step"].startswith(said) == bool(failed), row["next_step"]
        assert (row["settings"] == "graph=true") != bool(failed)


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
    found = find_infeasible(cell, ["graph=true", "precision=bf16", "batch=8"])
    assert found == {"graph=true": OUTSIDE, "batch=8": OUTSIDE}


def test_settings_that_contradict_each_other_are_no_plan() -> None:
    """Each alone may be set, and both together not."""
    cell = resolved(phases=["train"])
    assert find_contradiction(cell, "graph=true") is None and find_contradiction(cell, "checkpoint=true") is None
    assert "cannot be combined" in str(find_contradiction(cell, "graph=true checkpoint=true"))
    # Of a cell in fp16, for whose graph no optimizer is fused.
    assert "fp16" in find_infeasible({**cell, "precision": "fp16"}, ["graph=true"])["graph=true"]


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

    def predict(chosen: cell_plans.Settings) -> predicted_gains.Gain | None:
        words = cell_plans.join_words(chosen)
        asked.append(words)
        gain = 1.2 ** len([one for one in chosen if one.words != "d=1"])
        return None if "b=1" in words and "a=2" in words else predicted_gains.Gain(1.0, 1 / gain, gain, gain, gain)

    found = {cell_plans.join_words(chosen): gain.gain for chosen, gain in
             cell_plans.search_combinations(known, predict, lambda chosen: "c=1" not in cell_plans.join_words(chosen) or len(chosen) < 4)}  # fmt: skip
    assert max(found, key=lambda words: found[words]) == "a=1 b=1 c=1" and found["a=1 b=1 c=1"] == pytest.approx(1.2**3)
    assert len(asked) == len(set(asked)) and not any("a=1" in words and "a=2" in words for words in asked)
    assert {"a=1 b=1", "a=1 c=1", "a=1 d=1", "b=1 c=1", "b=1 d=1", "c=1 d=1", "c=1 a=2", "a=2 d=1"} <= set(found)
    # Nothing is known of what includes these two.
    assert "b=1 a=2" in asked and "b=1 a=2" not in found


def test_the_table_is_read_back_as_it_was_written(limited: Tables, tmp_path: Path) -> None:
    """From files, as the rule has it: tables, a sidecar with the settings, traced steps."""
    tables, programs, _ = limited
    kinds = {**schemas.TABLES, "verdicts": verdict_columns.VERDICTS_TABLE}
    paths = {name: str(tmp_path / f"{name}.csv") for name in tables}
    for name, table in tables.items():
        write_csv(_declared(table, kinds[name]), paths[name])
    home = tmp_path / CELL[0]
    home.mkdir()
    sidecar, program = home / "train.time.csv.json", home / "train.program.npz"
    write_json({"cell": {"graph": True}}, sidecar)
    write_programs(list(programs[CELL].values()), program)
    plan_table.main(paths, None, [str(sidecar)], [str(program)], str(tmp_path / "plans.csv"))
    found = reading.read(tmp_path / "plans.csv", plan_table.PLANS_TABLE).set_index("settings")
    assert found.loc["graph=true", "not_possible"] == IN_FORCE and "precision=tf32" in found.index
    assert found["rank"].tolist() == list(range(1, len(found) + 1))
    assert not [words for words in found.index[found["not_possible"].isin(["", None])] if "graph" in words]


def test_gains_of_recorded_cells_are_expected_again(limited: Tables, tmp_path: Path) -> None:
    """From what a folder of results holds of the cells that were tried; what was expected before is replaced."""
    tables, programs, _ = limited
    results, folder = tmp_path / "results", tmp_path / "data/one"
    kinds = {**schemas.TABLES, "trials": trial_table.TRIALS_TABLE}
    tried = pd.DataFrame({"model": CELL[0], "phase": CELL[1], "settings": ["both", "none"], "gain": 2.0, "expected": 9.0,
                          "words": ["precision=bf16 graph=true", "compile=true"], "advised": False, "chosen": False})  # fmt: skip
    other = tables["steps"].assign(model="other")
    for name, table in {**tables, "steps": pd.concat([tables["steps"], other]), "trials": tried}.items():
        if name in kinds:
            (results / "tables").mkdir(parents=True, exist_ok=True)
            write_csv(_declared(table, kinds[name]), results / f"tables/{name}.csv")
    (results / CELL[0]).mkdir()
    write_json({"cell": {"graph": False}}, results / CELL[0] / "train.time.csv.json")
    write_programs(list(programs[CELL].values()), results / CELL[0] / "train.program.npz")
    recorded_cells.main([str(results), str(folder)])
    assert set(schemas.read_table("steps", folder / "steps.csv")["model"]) == {CELL[0]}
    trials = reading.read(folder.with_suffix(".csv"), trial_table.TRIALS_TABLE)
    both, none = recorded_cells.expect_again(trials, folder).to_dict("records")
    ran_with = {CELL: {"graph": False}}
    plans = plan_table.tabulate_plans(tables, {}, ran_with, verdict_rules.load_rules(), programs).set_index("settings")
    mine = plans.loc["graph=true precision=bf16"]
    assert both["expected"] == pytest.approx(mine["gain"]) and both["expected"] != 9
    assert both["expected_high"] == pytest.approx(mine["gain_high"]) and both["outcome"] in ("hit", "miss")
    assert np.isnan(none["expected"]) and none["outcome"] == ""


def test_a_verdict_and_a_plan_of_the_same_settings_expect_the_same(tmp_path: Path) -> None:
    """Two verdicts are about copies from pageable memory, and several about the same precision."""
    staged = [Act("staged", 0, "transfer", 5e3, 3e5, ns=2e5)] * 2
    operators = [simulated_waits.operator(2e4, 3e4)] * 60
    told = simulated_waits.told([*staged, *operators], tmp_path, amend=lambda path, _: name_memory(path, 0),
                                every_rule=True, pin_memory=False)  # fmt: skip
    tables = {"cells": STEP_CELLS, "steps": told.row.to_frame().T.infer_objects(), "kernels": told.kernels,
              "verdicts": told.verdicts}  # fmt: skip
    ran_with = {CELL: simulated_waits.GIVEN | {"pin_memory": False}}
    programs = {CELL: {process_number(told.program.process): told.program}}
    plans = plan_table.tabulate_plans(tables, {}, ran_with, known_rules.load(True), programs)
    gains = ["gain", "gain_low", "gain_high"]
    planned = {frozenset(row["settings"].split()): row[gains] for _, row in plans[plans["gain"] > 0].iterrows()}
    rows = told.verdicts[told.verdicts["level"].isin(["cell", "setting"]) & told.verdicts["gain"].gt(0)]
    compared = [(row["verdict"], row["settings"]) for _, row in rows.iterrows() if isinstance(row["settings"], str)]
    for _, row in rows[rows["settings"].notna()].iterrows():
        mine = planned[frozenset(row["settings"].split())]
        assert row[gains].astype(float).tolist() == pytest.approx(mine.astype(float).tolist(), nan_ok=True), row[
            "verdict"
        ]
    assert {("transfer-bound", "pin_memory=true"), ("pageable copies", "pin_memory=true")} <= {*compared}
    assert {"graph=true", "graph=true precision=bf16", "precision=tf32"} <= {words for _, words in compared}


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
    failed = {("m", "train"): {"workers=2": "odd", "data.source=folder": "no folder"}}
    given = chosen, {}, {("m", "train"): {"workers": 0}}, known_rules.load(), {}
    rows = plan_table.tabulate_plans(*given, failed=failed).to_dict("records")
    assert [(one["settings"], one["not_possible"], one["outlook"]) for one in rows] == [
        ("workers=2", "it failed in a trial: odd", plan.NOT_POSSIBLE),
        ("data.source=folder", "it failed in a trial: no folder", plan.NOT_POSSIBLE),
    ]
    # Its gain is a limit, so that it may not help at all.
    assert row["outlook"] == plan.MAY_NOT_HELP and row["changes"] == "load batches in 2 worker processes"
    assert cpu_page.of_gpus(" ".join(str(value) for value in row.values())) == []


def test_settings_have_the_types_of_the_schema() -> None:
    assert plan.parse_typed("precision=bf16 batch=8 compile=true") == {
        "precision": "bf16", "batch": 8, "compile": True}  # fmt: skip


def test_a_combination_has_the_error_of_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of combinations are kept by the kinds of all their settings."""
    asked: list[tuple[list[RequestedChange], float]] = []

    class Replayed:
        def gain_together(self, changes: list[RequestedChange], step: object, error: float) -> None:
            asked.append((changes, error))

    class Judged:
        replayed, step, ran_with = Replayed(), None, {}

        class scored:  # noqa: N801
            bound = staticmethod({"a": 0.1, "b": 0.2, "a + b": 0.7}.__getitem__)

    one, other = a_setting("a=1"), a_setting("b=1")
    both: Any = cell_plans.CombinedSimulation(Judged(), pd.DataFrame())  # type: ignore[arg-type]
    for chosen, error in (((one,), 0.1), ((other,), 0.2), ((one, other), 0.7)):
        asked.clear()
        assert both.predict(chosen) is None
        assert asked == [([each.asked for each in chosen], error)]


def test_a_larger_combination_has_to_gain_two_in_a_hundred_more() -> None:
    """Pairs gain 2 % more than singles, or a little more; only then are all three together simulated."""
    known = [a_setting(words) for words in ("a=1", "b=1", "c=1")]
    for pair, tried in ((1.02 * 1.5, False), (1.0201 * 1.5, True)):
        gains = {1: 1.5, 2: pair, 3: 9.0}

        def predict(chosen: cell_plans.Settings, gains: dict[int, float] = gains) -> predicted_gains.Gain:
            gain = gains[len(chosen)]
            return predicted_gains.Gain(1.0, 1 / gain, gain, gain, gain)

        found = cell_plans.search_combinations(known, predict, lambda chosen: True)
        assert (max(len(chosen) for chosen, _ in found) == 3) is tried


@pytest.mark.parametrize(
    ("one", "gain", "other", "of_other", "right"),
    [
        # Two in a hundred more are worth a setting, and no less.
        ("a=1", 1.0, "a=1 b=2", 1.02, True),
        ("a=1", 1.0, "a=1 b=2", 1.0201, False),
        ("a=1", 2.0, "a=1", 1.5, False),
        ("a=1 b=2", 2.0, "a=1", 1.5, False),
        ("c=1", 2.0, "a=1 b=2", 1.5, False),
        # A gain that is not known is none.
        ("a=1", None, "a=1 b=2", 0.5, False),
        ("a=1", 0.5, "a=1 b=2", None, True),
        ("a=1", None, "a=1 b=2", None, True),
    ],
)
def test_fewer_settings_do_as_well(one: str, gain: Any, other: str, of_other: Any, right: bool) -> None:
    assert cell_plans._does_as_well(a_plan(one, gain), a_plan(other, of_other)) is right


def test_a_plan_without_a_gain_comes_behind_those_that_have_one() -> None:
    ranked = rank_plans([a_plan("a=1", None), a_plan("b=1", 0.5), a_plan("c=1", 1.5, plan.MAY_NOT_HELP)])  # type: ignore[arg-type]
    assert [one.settings for one in ranked] == ["c=1", "b=1", "a=1"]


@pytest.mark.parametrize(
    ("gain", "low", "outlook"),
    [
        (1.0, 0.9, plan.DOES_NOT_HELP), (0.5, 1.5, plan.DOES_NOT_HELP), (1.001, 1.0, plan.MAY_NOT_HELP),
        (1.001, None, plan.MAY_NOT_HELP), (1.5, 1.001, plan.HELPS),
    ],
)  # fmt: skip
def test_what_an_interval_says_of_a_gain(gain: float, low: float | None, outlook: str) -> None:
    assert plan.judge_interval(gain, low) == outlook


def test_the_two_best_combinations_of_each_size_are_extended() -> None:
    """Of five settings pairs with a gain most, that with b before that with c and that with d; all of three gain alike."""
    known = [a_setting(f"{name}=1") for name in "abcde"]
    gains = {"a=1 b=1": 1.5, "a=1 c=1": 1.45, "a=1 d=1": 1.4}

    def predict(chosen: cell_plans.Settings) -> predicted_gains.Gain:
        gain = 1.2 if len(chosen) == 1 else gains.get(cell_plans.join_words(chosen), 1.1) if len(chosen) == 2 else 1.51
        return predicted_gains.Gain(1.0, 1 / gain, gain, gain, gain)

    found = cell_plans.search_combinations(known, predict, lambda chosen: True)
    sizes = [sum(len(chosen) == size for chosen, _ in found) for size in (1, 2, 3, 4)]
    assert sizes == [5, 10, 5, 0]
    assert {cell_plans.join_words(chosen) for chosen, _ in found if len(chosen) == 3} == {
        "a=1 b=1 c=1", "a=1 b=1 d=1", "a=1 b=1 e=1", "a=1 c=1 d=1", "a=1 c=1 e=1"}  # fmt: skip


def advising(*rows: dict[str, Any]) -> pd.DataFrame:
    known = {"level": "cell", "by": "profzoo", "settings": "a=1", "gain": 1.5, "gain_low": 1.25, "gain_high": 2.0,
             "verdict": "v", "rank": 3, "method": "Amdahl", "trials": 4.0, "median_error": 0.1, "covered": 0.9,
             "score": "s"}  # fmt: skip
    return pd.DataFrame([known | row for row in rows])


def test_plans_of_verdicts_have_what_these_say() -> None:
    """Of a cell, by profzoo, with settings and a gain; of two with the same settings the one that comes first."""
    rows = advising({}, {"rank": 2, "verdict": "w", "settings": "b=1 a=1"}, {"rank": 4, "verdict": "later"},
                    {"level": "kernel", "settings": "c=1"}, {"by": "ncu", "settings": "d=1"}, {"settings": ""},
                    {"settings": None}, {"gain": 0.0, "settings": "e=1"}, {"gain": float("nan"), "settings": "f=1"},
                    {"settings": "g=1", "rank": 9, "trials": float("nan"), "score": float("nan"), "gain": 1.1,
                     "gain_low": 0.9})  # fmt: skip
    found = cell_plans._advising_rows(rows)
    assert {(" ".join(sorted(words)), row["verdict"]) for words, row in found.items()} == {
        ("a=1 b=1", "w"), ("a=1", "v"), ("g=1", "v")}  # fmt: skip
    simulated = {frozenset(["b=1", "a=1"])}
    first, last = cell_plans._plans_of_verdicts(found, simulated, {"z=1": "why"})
    assert (first.settings, first.gain, first.gain_low, first.gain_high) == ("a=1", 1.5, 1.25, 2.0)
    assert (first.outlook, first.verdicts, first.advised, first.method) == (plan.HELPS, "v", True, "Amdahl")
    assert (first.trials, first.median_error, first.covered, first.score) == (4, 0.1, 0.9, "s")
    assert first.evidence == "verdicts.csv: v (rank 3)"
    assert (last.settings, last.trials, last.score, last.outlook) == ("g=1", None, "", plan.MAY_NOT_HELP)
    assert [one.settings for one in cell_plans._plans_of_verdicts(found, simulated, {"a=1": "why"})] == ["g=1"]


def scored(**given: Any) -> Any:
    score = Score(9, 3, 0.1, 0.3, 0.2, 0.9, 1.0, 0.0)
    return Scores(3, 0.5, 0.61, 0.2, {}, {"a": replace(score, **given)})


def test_a_simulated_plan_names_the_verdicts_that_advise_its_parts() -> None:
    one, other = a_setting("a=1"), a_setting("b=1")
    rows = cell_plans._advising_rows(advising({}, {"settings": "b=1", "verdict": "w", "rank": 5}))
    gain = predicted_gains.Gain(3.0, 2.0, 1.5, 1.25, 2.0)
    alone = cell_plans._simulated_plan((one,), gain, scored(), rows, "e")
    assert (alone.gain, alone.gain_low, alone.gain_high, alone.outlook) == (1.5, 1.25, 2.0, plan.HELPS)
    assert (alone.verdicts, alone.advised, alone.trials) == ("because of a=1", True, 9)
    assert (alone.median_error, alone.covered) == (0.1, 0.9)
    assert alone.evidence == "e; verdicts.csv: v (rank 3)"
    poor = cell_plans._simulated_plan((one,), gain, scored(helped=0.5), {}, "e")
    assert (poor.outlook, poor.advised, poor.evidence) == (plan.ABSTAINS, False, "e")
    both = cell_plans._simulated_plan((one, other), gain, scored(), rows, "e")
    assert (both.settings, both.verdicts) == ("a=1 b=1", "because of a=1 + because of b=1")
    assert (both.advised, both.trials, both.median_error) == (False, 0, None)
    assert both.evidence == "e; verdicts.csv: v (rank 3), w (rank 5)"


@pytest.mark.parametrize(
    ("names", "counted", "said"),
    [
        (("graph", "bf16"), True, "graph + bf16"),
        (("graph", "bf16"), False, "graph + bf16, without counters"),
        (("graph", "workers"), False, "graph + workers"),
        (("tf32",), False, "tf32, without counters"),
    ],
)
def test_what_was_simulated_in_words(names: tuple[str, ...], counted: bool, said: str) -> None:
    chosen = [AdvisableSetting("v", name, name, RequestedChange(name), "") for name in names]
    assert cell_plans._name_change(chosen, counted) == said


@pytest.mark.parametrize(
    ("known", "words", "out"),
    [
        ({"a=1": "why"}, "a=1", True), ({"a=1": "why"}, "b=1", False), ({"a=1": "why"}, "a=1 b=1", True),
        ({"a=1": IN_FORCE}, "a=1", True), ({"a=1": IN_FORCE}, "a=1 b=1", False),
        ({"a=1": IN_FORCE, "b=1": IN_FORCE}, "a=1 b=1", True), ({"a=1": IN_FORCE, "b=1": "why"}, "a=1 b=1", True),
        ({}, "a=1", False), ({"a=1 b=1": "why"}, "b=1 c=1 a=1", True), ({"a=1 b=1": "why"}, "a=1 c=1", False),
    ],
)  # fmt: skip
def test_settings_that_are_ruled_out(known: dict[str, str], words: str, out: bool) -> None:
    assert cell_plans.rules_out(known, words) is out
