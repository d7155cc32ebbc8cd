"""cpu_step and on_cpu: what holds a step on a CPU back, by made tables; and that cells on GPUs are judged as before."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.io import column_types
from profzoo.io.scripts import write_csv
from profzoo.plans import table_columns as plan_columns
from profzoo.report import savings, savings_section
from profzoo.tables import layers, schemas
from profzoo.trials import candidate_settings
from profzoo.verdicts import cpu_verdicts, rules, verdict_table, verdicts
from profzoo.verdicts.cell_facts import CellFacts
from profzoo.verdicts.cpu_step import CpuStep, StepPart
from profzoo.verdicts.rule_evaluation import UNDECIDED
from tests import known_rules, whole_zoo

RULES = known_rules.load()
FLOOR = RULES["traits"]["at_the_floor"]
CELL = ("m", "train")
MS = 1e6
# A view, as short as a call can be, of which every step has some.
VIEW = ("aten::view", "a", "forward", 4, 4e3)


def operators(*rows: tuple[str, str, str, float, float]) -> pd.DataFrame:
    """Of operator, module, direction, calls and ns a step."""
    table = pd.DataFrame(rows, columns=["operator", "module", "direction", "launches", "total_ns"])
    table = table.assign(shapes="", caller="", type="Linear", needed_flop=np.nan, needed_share=0.0)
    return table.reindex(columns=layers.OPERATORS)


def ranges(data_ns: float = 0.0, forward_ns: float = 10 * MS, clock: str = "cpu") -> pd.DataFrame:
    rows = [("data", data_ns), ("forward", forward_ns)]
    return pd.DataFrame(
        [{"model": "m", "phase": "train", "tool": "torch", "clock": clock, "range": name, "ns_per_step": ns,
          "launches_per_step": np.nan} for name, ns in rows]
    )  # fmt: skip


def cells(step_ns: float = 10 * MS, **given: object) -> pd.DataFrame:
    row = {"model": "m", "phase": "train", "step_ns": step_ns, "step_median_ns": step_ns, "unsteady": ""}
    row |= dict.fromkeys(["step_lower_quartile_ns", "step_upper_quartile_ns"], step_ns)
    return pd.DataFrame([row | given])


def judged(timed: pd.DataFrame, parts: pd.DataFrame, own: pd.DataFrame, **ran_with: object) -> pd.DataFrame:
    return cpu_verdicts.tabulate_cpu_verdicts(timed, parts, {CELL: own}, {CELL: ran_with}, RULES)


BIG = operators(VIEW, ("aten::mm", "head", "forward", 1, 4 * MS), ("aten::mm", "head", "backward", 2, 4 * MS),
                ("aten::mm", "tail", "forward", 1, 0.5 * MS), ("aten::tanh", "act", "forward", 1, 1.4 * MS))  # fmt: skip


def test_an_operator_and_its_layers_are_named_with_share_gain_and_evidence() -> None:
    table = judged(cells(), ranges(), BIG)
    (cell,) = table[table["level"] == "cell"].to_dict("records")
    assert (cell["verdict"], cell["function"], cell["method"]) == ("operator-bound", "aten::mm", "Amdahl")
    assert cell["share"] == cell["value"] == pytest.approx(0.85) and cell["gain"] == pytest.approx(1 / (1 - 0.425))
    assert cell["evidence"] == "train.operators.csv: aten::mm" and (cell["trials"], cell["score"]) == (
        0,
        "no trials of such advice yet",
    )
    assert cell["next_step"].startswith("aten::mm, 4 calls per step, 47% of its time in head forward: ") and pd.isna(
        cell["settings"]
    )
    of_layers = table[table["level"] == "layer"]
    assert of_layers[["module", "direction"]].to_numpy().tolist() == [["head", "forward"], ["head", "backward"]]
    assert (
        of_layers["share"].to_list() == pytest.approx([0.4, 0.4])
        and (of_layers["threshold"] == RULES["floors"]["layer"]).all()
    )


def test_how_fast_an_operator_computes_is_of_calls_whose_needs_are_known() -> None:
    known = BIG.assign(needed_flop=[np.nan, 4e8, np.nan, np.nan, np.nan], needed_share=[0, 1, 0, 0, 0])
    assert ", 4 calls per step, 100 Gflop/s, " in judged(cells(), ranges(), known)["next_step"].iloc[0]


def test_a_gain_is_between_none_and_that_of_the_most_that_the_spread_of_steps_allows() -> None:
    (steady,) = judged(cells(), ranges(), BIG).query("level == 'cell'").to_dict("records")
    assert (steady["gain_low"], steady["gain_high"]) == (1, pytest.approx(steady["gain"]))
    (spread,) = judged(cells(step_lower_quartile_ns=8 * MS), ranges(), BIG).query("level == 'cell'").to_dict("records")
    most = 8.5 * 1.25 / (8.5 * 1.25 + 1.5)
    assert spread["gain"] == steady["gain"] and spread["gain_high"] == pytest.approx(1 / (1 - most / 2))
    (promise,) = savings.list_savings(
        {"cells": cells(step_lower_quartile_ns=8 * MS), "verdicts": pd.DataFrame([spread])}
    )
    assert promise.how == savings.AT_MOST and savings_section.saving_context(promise)["between"] == "0 to 4.38 ms"


@pytest.mark.parametrize(
    ("data_ns", "ran_with", "settings", "says"),
    [
        (5 * MS, {"workers": 0}, "workers=2", "load batches in parallel to the step"),
        (5 * MS, {"workers": 2}, None, "more worker processes"),
        (1.5 * MS, {"workers": 0}, None, "a worker process would need longer to hand it over"),
    ],
)
def test_input_that_a_step_waits_for(data_ns: float, ran_with: dict, settings: str | None, says: str) -> None:
    # Operators that make a batch are of the input.
    own = operators(
        VIEW, ("aten::cat", "(data)", "data", 1, data_ns), *[(f"aten::{n}", "a", "forward", 1, MS) for n in range(5)]
    )
    (found,) = judged(cells(5 * MS + data_ns), ranges(data_ns, 5 * MS), own, **ran_with).to_dict("records")
    assert (found["verdict"], found["settings"], found["evidence"]) == ("input-bound", settings, "ranges.csv: data")
    assert says in found["next_step"] and found["share"] == pytest.approx(data_ns / (5 * MS + data_ns))


def test_lines_that_make_a_batch_are_named_and_reading_is_told_from_collating() -> None:
    own = operators(
        VIEW, ("aten::cat", "(data)", "data", 1, 5 * MS), *[(f"aten::{n}", "a", "forward", 1, MS) for n in range(5)]
    )
    line = {"thread": "", "range": "data", "file": "data.py", "text": ""}
    lines: Any = [
        line | {"work": "reading", "line": 7, "function": "Images.__getitem__", "share": 0.4},
        line | {"work": "collating", "line": 21, "function": "collate", "share": 0.1},
        line | {"work": "", "line": 30, "function": "step", "share": 0.3, "range": "forward"},
    ]
    table = cpu_verdicts.tabulate_cpu_verdicts(
        cells(10 * MS),
        ranges(5 * MS, 5 * MS),
        {CELL: own},
        {CELL: {"workers": 0}},
        RULES,
        CellFacts(host_lines={CELL: lines}),
    )
    assert table.iloc[0]["next_step"].startswith(
        "making one batch takes 5 ms; reading samples takes 40 % of the step (Images.__getitem__ at data.py:7, 40 % of the "
        "step), collating samples takes 10 % of the step (collate at data.py:21, 10 % of the step): load batches"
    )


def test_calls_that_cost_what_a_call_costs_make_a_larger_batch_nearly_free() -> None:
    # A thousand calls of 4 us, where a view takes 1, and as much before each of them.
    own = operators(VIEW, ("aten::add", "a", "forward", 1000, 4e6), ("aten::mm", "a", "forward", 1, 1.9 * MS))
    (found,) = judged(cells(), ranges(), own, batch=4).to_dict("records")
    assert (found["verdict"], found["settings"]) == ("overhead-bound", "batch=8") and pd.isna(found["function"])
    assert found["share"] == pytest.approx(0.81) and found["gain"] == pytest.approx(1 / (1 - 0.405))
    assert "1,005 operator calls per step (a call that does nothing takes 1 µs)" in found["next_step"]
    assert found["evidence"] == "train.operators.csv: calls below 6 µs"
    compiled = judged(cells(), ranges(), own, batch=4, compile=True).iloc[0]
    assert "or try compile" in found["next_step"] and "or try compile" not in compiled["next_step"]


def test_time_between_few_calls_is_no_overhead_of_theirs() -> None:
    own = operators(VIEW, ("aten::add", "a", "forward", 100, 4e5))
    assert judged(cells(), ranges(), own)["verdict"].tolist() == [verdicts.NOTHING]


def test_without_a_call_that_does_nothing_no_call_is_told_to_be_short() -> None:
    own = operators(("aten::add", "a", "forward", 1000, 4e6))
    step = CpuStep(cells().iloc[0].to_dict(), {"forward": 10 * MS}, own, FLOOR)
    assert step.overhead == StepPart(0.0, 0.0) and np.isnan(step.floor_ns)
    assert step.share(StepPart(4e6, 1000)).value == pytest.approx(0.4)


def test_what_is_outside_of_steps_is_no_part_of_them() -> None:
    own = operators(VIEW, ("aten::mm", "(outside)", "outside", 1, 90 * MS))
    assert judged(cells(), ranges(), own)["verdict"].tolist() == [verdicts.NOTHING]


def test_a_step_without_operators_has_none_that_takes_longest() -> None:
    (found,) = judged(cells(), ranges(), operators(("aten::mm", "(outside)", "outside", 1, 90 * MS))).to_dict("records")
    assert (found["verdict"], found["value"]) == (verdicts.NOTHING, 0)
    assert found["next_step"] == "the longest operator, none, takes 0% of the step"


def test_what_a_profiler_takes_of_the_only_call() -> None:
    """A step of 10 ms that is 2 us longer under the profiler, whose shortest call takes 4: all of that is the call's."""
    step = CpuStep(
        cells().iloc[0].to_dict(), {"forward": 10.002 * MS}, operators(("aten::view", "a", "forward", 1, 4e3)), FLOOR
    )
    assert step.a_call_ns == pytest.approx(2e3) and step.longer == pytest.approx(1) and step.apart == pytest.approx(1)
    # No more than the call itself, and nothing where the step is shorter.
    longer = CpuStep(
        cells().iloc[0].to_dict(), {"forward": 11 * MS}, operators(("aten::view", "a", "forward", 1, 4e3)), FLOOR
    )
    assert longer.a_call_ns == 4e3 and longer.longer == pytest.approx(10.996 / 10)
    shorter = CpuStep(
        cells().iloc[0].to_dict(), {"forward": 5 * MS}, operators(("aten::view", "a", "forward", 1, 4e3)), FLOOR
    )
    assert shorter.a_call_ns == 0 and (shorter.longer, shorter.apart) == (0.5, 2)


def test_of_what_a_profiler_adds_to_calls_a_long_one_has_little() -> None:
    """A step of 10 ms, 6 of which one product takes; under the profiler 5,000 calls take 0.8 us longer each."""
    own = operators(VIEW, ("aten::mm", "a", "forward", 1, 6 * MS), ("aten::add", "a", "forward", 4995, 8 * MS))
    step = CpuStep(cells().iloc[0].to_dict(), {"forward": 14 * MS}, own, FLOOR)
    found = step.share(StepPart(6 * MS, 1))
    assert found.value == pytest.approx(0.6, abs=0.001) and found.least == pytest.approx(6 / 14)
    # No more than a call that does nothing takes.
    slow = CpuStep(cells(5 * MS).iloc[0].to_dict(), {"forward": 14 * MS}, own, FLOOR).share(StepPart(6 * MS, 1))
    assert slow.value == pytest.approx(6 / 9, abs=0.001)


# An operator has 2.6 of 10 ms, and others 7.4, none of them a quarter.
NEAR = operators(VIEW, ("aten::mm", "a", "forward", 1, 2.6 * MS),
                 *[(f"aten::{number}", "a", "forward", 1, 0.9 * MS) for number in range(8)])  # fmt: skip


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        # 8.5 of 10 ms in the operator, whose steps spread by an eighth: 8.5 of 8.5 + 1.5 * 1.125, and the other way.
        ({"unsteady": "spreads", "step_upper_quartile_ns": 11.25 * MS}, 8.5 / 10.1875, 9.5625 / 11.0625),
        # Others may have had 4 of 10 ms, all of them in it: 4.5 of 6, or none of them, and all that is left is in it.
        ({"unsteady": "others", "cpu_taken_share": 0.4}, 4.5 / 6, 1.0),
        # The mean is 1.25 times the median.
        ({"step_median_ns": 8 * MS}, 8.5 / 10.375, 10.625 / 12.125),
        # 10 ms under the profiler and 4 without: 6 of it may have been in the operator alone.
        (dict.fromkeys(("step_ns", "step_median_ns", *schemas.QUARTILES), 4 * MS), 2.5 / 4, 1.0),
        # 10 ms under the profiler and 25 without, 15 of which may be in it, or not.
        (dict.fromkeys(("step_ns", "step_median_ns", *schemas.QUARTILES), 25 * MS), 8.5 / 25, 23.5 / 25),
    ],
)
def test_of_steps_that_are_not_steady_a_verdict_holds_at_both_ends(given: dict, least: float, most: float) -> None:
    found, *rest = judged(cells(**given), ranges(), BIG).query("level == 'cell'").to_dict("records")
    assert (found["verdict"], found["function"]) == ("operator-bound", "aten::mm")
    assert [row["verdict"] for row in rest] in ([], [UNDECIDED])
    assert found["share"] == pytest.approx(0.85, abs=0.001)
    # The profiler takes a nanosecond or so of each of eight calls where steps are longer under it.
    assert (found["share_low"], found["share_high"]) == pytest.approx((least, most), abs=0.001)
    assert found["gain_high"] == pytest.approx(1 / (1 - most / 2), rel=0.001)


def test_seventy_percent_of_a_step_whose_times_spread_by_twelve_is_more_than_a_quarter() -> None:
    own = operators(VIEW, ("aten::mm", "a", "forward", 1, 7 * MS), ("aten::tanh", "a", "forward", 1, 2 * MS))
    busy = cells(step_upper_quartile_ns=11.2 * MS, unsteady="the middle half of the steps spreads by 12%")
    assert judged(busy, ranges(), own).query("level == 'cell'")["verdict"].tolist() == ["operator-bound"]


@pytest.mark.parametrize(
    ("given", "why", "between"),
    [
        # 1.6 of 9 ms, or 2.6.
        ({"unsteady": "others", "cpu_taken_share": 0.1}, "undecided because others", "18% and 29%"),
        (
            {"unsteady": "processes differ", "step_upper_quartile_ns": 11 * MS},
            "undecided because processes differ",
            "24% and 28%",
        ),
        ({"step_median_ns": 7 * MS}, "undecided because the mean step is 1.4 times the median", "20% and 33%"),
        (
            dict.fromkeys(("step_ns", "step_median_ns", *schemas.QUARTILES), 25 * MS),
            "undecided because step times with and without the profiler differ by a factor of 2.5",
            "10% and 70%",
        ),
    ],
)
def test_what_steps_that_are_not_steady_leave_open_is_undecided(given: dict, why: str, between: str) -> None:
    (found,) = judged(cells(**given), ranges(), NEAR).to_dict("records")
    assert found["verdict"] == UNDECIDED and pd.isna(found["gain"]) and pd.isna(found["settings"])
    assert found["next_step"].startswith(f"operator-bound: between {between} of the step, {why}")


def test_where_no_rule_could_hold_nothing_is_left_open() -> None:
    even = operators(VIEW, *[(f"aten::{number}", "a", "forward", 1, MS) for number in range(10)])
    assert judged(cells(unsteady="drift"), ranges(), even)["verdict"].tolist() == [verdicts.NOTHING]
    # Where others had nearly all of the CPU, it could be any operator; the longest says so once.
    disturbed = judged(cells(unsteady="others", cpu_taken_share=0.87), ranges(), NEAR)
    assert disturbed["verdict"].tolist() == [UNDECIDED] and "aten::mm" in disturbed["evidence"].iloc[0]


def test_a_profiler_that_doubles_a_step_by_its_calls_alone_leaves_no_doubt() -> None:
    """A step of 4 ms, and of 10 under the profiler, which takes 0.7 us of each of 8,000 calls, where a view takes 1."""
    own = operators(VIEW, ("aten::add", "a", "forward", 8000, 9.6 * MS))
    (found,) = judged(cells(4 * MS), ranges(), own, batch=1).to_dict("records")
    assert found["verdict"] == "overhead-bound" and found["settings"] == "batch=2"
    # As many times as long, of which calls take little.
    few = operators(VIEW, ("aten::add", "a", "forward", 80, 6 * MS))
    other = judged(cells(4 * MS), ranges(), few, batch=1).iloc[0]
    assert other["verdict"] == UNDECIDED and "a factor of 2.5, more than its overhead explains" in other["next_step"]


def test_a_share_that_steps_leave_on_both_sides_of_its_threshold_is_undecided() -> None:
    even = [(f"aten::{number}", "a", "forward", 1, 0.9 * MS) for number in range(8)]
    own = operators(VIEW, ("aten::mm", "a", "forward", 1, 2.6 * MS), *even)
    assert judged(cells(), ranges(), own)["verdict"].tolist() == ["operator-bound", "operator-bound"]
    (found,) = judged(cells(step_upper_quartile_ns=11 * MS), ranges(), own).to_dict("records")
    assert found["verdict"] == UNDECIDED and found["next_step"].startswith(
        "operator-bound: between 24% and 28% of the step"
    )
    assert found["value"] == pytest.approx(0.26) and pd.isna(found["gain"])


def test_a_balanced_step_has_no_verdict_but_its_longest_operator() -> None:
    even = operators(VIEW, *[(f"aten::{number}", "a", "forward", 1, (9 + number) * 1e5) for number in range(9)])
    (found,) = judged(cells(), ranges(0.5 * MS, 9.5 * MS), even).to_dict("records")
    assert (found["verdict"], found["gain"]) == (verdicts.NOTHING, 1.0)
    assert found["next_step"] == "the longest operator, aten::8, takes 17% of the step"


def test_the_largest_gain_is_first() -> None:
    own = operators(VIEW, ("aten::mm", "a", "forward", 1, 4.5 * MS))
    table = judged(cells(), ranges(5 * MS, 5 * MS), own).query("level == 'cell'")
    assert table["verdict"].tolist() == ["input-bound", "operator-bound"] and table["rank"].tolist() == [1, 2]


def test_cells_of_a_gpu_are_not_judged_so() -> None:
    assert judged(cells(), ranges(clock="gpu"), BIG).empty
    assert judged(cells(), ranges().assign(tool="nsys"), BIG).empty
    assert cpu_verdicts.tabulate_cpu_verdicts(cells(), ranges(), {}, {}, RULES).empty


def test_advice_on_a_cpu_is_tried_and_expected_under_one_name() -> None:
    """After all others where there may be a GPU, not at all on one."""
    config = configuration.normalise_config({"models": "lstm"})
    batch = settings.resolve_cell("lstm", "train", "time", config)["batch"]
    advice = [("input-bound", "workers=2"), ("overhead-bound", f"batch={2 * batch}")]
    row = {**dict.fromkeys(plan_columns.COLUMNS, ""), "model": "lstm", "phase": "train", "rank": 1, "advised": True,
           "gain": 1.5, "gain_low": 1.2, "gain_high": 2.0}  # fmt: skip
    table = pd.DataFrame([row | {"verdicts": verdict, "settings": words} for verdict, words in advice])
    for own, name in ((["bf16", "double_batch"], candidate_settings.DOUBLE_BATCH), (["bf16"], f"batch={2 * batch}")):
        config = configuration.normalise_config({"models": "lstm", "trials": {"panel": own}})
        found, _ = candidate_settings.candidate_words("lstm", "train", config)
        known = candidate_settings.expected_gains(table, config, {"lstm train": batch})["lstm train"]
        assert {key: one["verdict"] for key, one in known.items()} == {
            "workers=2": "input-bound",
            name: "overhead-bound",
        }
        assert known.keys() <= found.keys() and f"batch={2 * batch}" in found[name]
        assert len({tuple(words) for words in found.values()}) == len(found)
        of_cpus = ["workers=2"] if name == candidate_settings.DOUBLE_BATCH else ["workers=2", name]
        assert list(found)[-len(of_cpus) :] == of_cpus
    on_gpu = configuration.normalise_config({"models": "lstm", "device": "cuda"})
    assert "workers=2" not in candidate_settings.candidate_words("lstm", "train", on_gpu)[0]
    # Twice of what another cell has is not twice of this one's.
    assert candidate_settings.name_candidate("batch=6", config, 4) == "batch=6"


@pytest.mark.slow
def test_a_zoo_on_a_gpu_is_judged_as_before(tmp_path: Path) -> None:
    """Tables of 42 recorded cells, with torch.profiler's ranges, which are of the GPU's clock there."""
    zoo = whole_zoo.tables()
    parts = pd.concat([zoo["ranges"], zoo["ranges"].assign(tool="torch")])
    given = {
        "steps": zoo["steps"],
        "kernels": _whole(zoo["kernels"]),
        "cells": zoo["cells"].assign(peak_memory_bytes=1),
        "ranges": parts,
    }
    paths = {name: str(tmp_path / f"{name}.csv") for name in (*given, "written", "before", "waits")}
    for name, table in given.items():
        write_csv(table, paths[name])
    cpus = paths["cells"], paths["ranges"], []
    outputs = paths["written"], paths["waits"]
    verdict_table.main(paths["steps"], paths["kernels"], None, None, [], [], [], ([], []), [], cpus, *outputs)
    steps, kernels = (schemas.read_table(name, paths[name]) for name in ("steps", "kernels"))
    # By all rules there are, as the tables are.
    write_csv(verdicts.tabulate_verdicts(steps, kernels, None, {}, {}, {}, rules.load_rules()), paths["before"])
    assert Path(paths["written"]).read_bytes() == Path(paths["before"]).read_bytes()
    assert len(pd.read_csv(paths["written"])) > 42
    assert pd.read_csv(paths["waits"]).empty


def _whole(recorded: pd.DataFrame) -> pd.DataFrame:
    """Recorded kernels, of which not all columns were kept, with what verdicts do not go by."""
    declared = schemas.TABLES["kernels"].columns
    lacking = {name: "" if kind == column_types.TEXT else 0 for name, kind in declared.items() if name not in recorded}
    return recorded.assign(**{**lacking, "mangled": [f"k{number}" for number in range(len(recorded))]})
