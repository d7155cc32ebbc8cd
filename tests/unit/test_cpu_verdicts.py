"""What holds a step on a CPU back, by made tables; and that cells on GPUs are judged as before."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.harness import devices
from profzoo.plans import plan_table as plan_columns
from profzoo.report import savings
from profzoo.tables import layers, schemas
from profzoo.trials import trial_table
from profzoo.verdicts.causes import cpu_verdicts, verdicts
from profzoo.verdicts.causes.cpu_verdicts import CpuStep, StepPart
from profzoo.verdicts.rules import rules
from profzoo.verdicts.rules.cell_facts import CellFacts, NotedFacts
from profzoo.verdicts.verdict import BY_PROFZOO, UNDECIDED
from profzoo.what_if.loading import Loading
from tests import known_rules

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
    found = cpu_verdicts.tabulate_cpu_verdicts(timed, parts, {CELL: own}, {CELL: ran_with}, RULES)
    return known_rules.keep_to_amdahl(found)


def even(count: int, ns: float) -> list[tuple[str, str, str, float, float]]:
    """As many operators, each with one call of this time."""
    return [(f"aten::{number}", "a", "forward", 1, ns) for number in range(count)]


def alike(ns: float) -> dict[str, float]:
    """Steps that all take as long, whatever they take under the profiler."""
    return dict.fromkeys(("step_ns", "step_median_ns", *schemas.QUARTILES), ns)


BIG = operators(VIEW, ("aten::mm", "head", "forward", 1, 4 * MS), ("aten::mm", "head", "backward", 2, 4 * MS),
                ("aten::mm", "tail", "forward", 1, 0.5 * MS), ("aten::tanh", "act", "forward", 1, 1.4 * MS))  # fmt: skip


def test_an_operator_and_its_layers_are_named_with_share_gain_and_evidence() -> None:
    table = judged(cells(), ranges(), BIG)
    (cell,) = table[table["level"] == "cell"].to_dict("records")
    assert (cell["verdict"], cell["function"], cell["method"]) == ("operator-bound", "aten::mm", "Amdahl")
    assert cell["share"] == cell["value"] == pytest.approx(0.85) and cell["gain"] == pytest.approx(1 / (1 - 0.425))
    assert (cell["evidence"], cell["trials"]) == ("train.operators.csv: aten::mm", 0)
    assert cell["score"] == "no trials of such advice yet" and pd.isna(cell["settings"])
    assert cell["next_step"].startswith("aten::mm, 4 calls per step, 47% of its time in head forward: ")
    layer = table[table["level"] == "layer"]
    assert layer[["module", "direction"]].to_numpy().tolist() == [["head", "forward"], ["head", "backward"]]
    assert layer["share"].to_list() == pytest.approx([0.4, 0.4])
    assert (layer["threshold"] == RULES["floors"]["layer"]).all()
    # How fast it computes is of calls whose needs are known.
    known = BIG.assign(needed_flop=[np.nan, 4e8, np.nan, np.nan, np.nan], needed_share=[0, 1, 0, 0, 0])
    assert ", 4 calls per step, 100 Gflop/s, " in judged(cells(), ranges(), known)["next_step"].iloc[0]


def test_no_verdict_per_step_is_given_where_no_step_repeats() -> None:
    facts = CellFacts(timed_under={CELL: "torch.profiler"}, whole=frozenset({CELL}))
    given = (cells(steps=1), ranges(), {CELL: BIG}, {CELL: {}}, RULES)
    table = cpu_verdicts.tabulate_cpu_verdicts(*given, facts)
    (cell,) = table[table["level"] == "cell"].to_dict("records")
    assert (cell["verdict"], cell["value"], cell["timed_under"]) == (UNDECIDED, 1, "torch.profiler")
    assert cell["next_step"].startswith("no step repeats") and table["gain"].isna().all()
    of_layers = table[table["level"] == "layer"]
    assert of_layers["module"].tolist() == ["head", "head"] and of_layers["settings"].isna().all()


def test_a_gain_is_between_none_and_that_of_the_most_that_the_spread_of_steps_allows() -> None:
    (steady,) = judged(cells(), ranges(), BIG).query("level == 'cell'").to_dict("records")
    assert (steady["gain_low"], steady["gain_high"]) == (1, pytest.approx(steady["gain"]))
    (spread,) = judged(cells(step_lower_quartile_ns=8 * MS), ranges(), BIG).query("level == 'cell'").to_dict("records")
    most = 8.5 * 1.25 / (8.5 * 1.25 + 1.5)
    assert spread["gain"] == steady["gain"] and spread["gain_high"] == pytest.approx(1 / (1 - most / 2))
    given = {"cells": cells(step_lower_quartile_ns=8 * MS), "verdicts": pd.DataFrame([spread])}
    (promise,) = savings.list_savings(given)
    assert promise.how == savings.AT_MOST and savings.saving_context(promise)["between"] == "0 to 4.38 ms"


@pytest.mark.parametrize(
    ("data_ns", "ran_with", "settings", "says"),
    [
        (5 * MS, {"workers": 0}, "workers=1", "load batches in parallel to the step"),
        (20 * MS, {"workers": 0}, "workers=2", "so input no longer limits from 4 workers on: load batches in parallel"),
        # Each of two workers takes at most two steps for a batch.
        (20 * MS, {"workers": 2}, "workers=4", "more worker processes"),
        (2 * MS, {"workers": 4}, "workers=6", "more worker processes"),
        (1.5 * MS, {"workers": 0}, None, "a worker process would need longer to hand it over"),
    ],
)
def test_input_that_a_step_waits_for(data_ns: float, ran_with: dict, settings: str | None, says: str) -> None:
    own = operators(VIEW, ("aten::cat", "(data)", "data", 1, data_ns), *even(5, MS))
    (found,) = judged(cells(5 * MS + data_ns), ranges(data_ns, 5 * MS), own, **ran_with).to_dict("records")
    assert (found["verdict"], found["settings"], found["evidence"]) == ("input-bound", settings, "ranges.csv: data")
    assert says in found["next_step"] and found["share"] == pytest.approx(data_ns / (5 * MS + data_ns))


def test_advice_that_failed_in_a_trial_is_not_given_again_on_a_cpu() -> None:
    own = operators(VIEW, ("aten::cat", "(data)", "data", 1, 5 * MS), *even(5, MS))
    facts = CellFacts(failed={CELL: {"workers=2": "odd"}})
    given = cells(), ranges(5 * MS), {CELL: own}, {CELL: {"workers": 0}}, RULES
    row = cpu_verdicts.tabulate_cpu_verdicts(*given, facts).iloc[0]
    assert pd.isna(row["settings"]) and "workers=1 is not possible, as it failed in a trial: odd: " in row["next_step"]


def test_workers_bring_no_more_than_they_can_do() -> None:
    """Two workers load a batch of 98.9 ms in 49.4; where others took CPU time, the share may be any."""
    own = operators(VIEW, *even(5, 0.2 * MS))
    step, parts = cells(100 * MS), ranges(98.9 * MS, 1.1 * MS)
    (found,) = judged(step, parts, own, workers=0).to_dict("records")
    assert found["settings"] == "workers=2" and found["gain"] == found["gain_high"] == pytest.approx(2 / 0.989)
    # Were it two thirds of the step, the rest would take as long as each worker: three times as fast, and never more.
    for given in ({"cpu_taken_share": 0.5}, {"step_upper_quartile_ns": 200 * MS}, {"step_lower_quartile_ns": 60 * MS}):
        told = judged(cells(100 * MS, **given), ranges(70 * MS, 30 * MS), own, workers=0)
        (found,) = told.query("verdict == 'input-bound'").to_dict("records")
        assert found["gain"] == pytest.approx(2 / 0.7) and found["gain"] < found["gain_high"] <= 3.0
    # Of workers that the step waits for, twice as many load twice as many batches.
    busy = judged(cells(100 * MS), ranges(95 * MS, 5 * MS), own, workers=2).iloc[0]
    assert busy["settings"] == "workers=4" and busy["gain"] == pytest.approx(2)
    none = judged(cells(100 * MS), ranges(100 * MS, 0.0), own, workers=2).iloc[0]
    assert (none["verdict"], none["settings"], none["gain"]) == ("input-bound", "workers=4", 2)


def test_the_step_and_its_workers_share_the_cores() -> None:
    """Of 100 ms, one core loads for 60, and two are busy in the rest: with one to receive, 141 ms are 70.5 on two cores.

    No worker loads faster than that, and one is enough. On 64 cores two are, as the rest takes 40 ms and one to receive.
    """
    own, parts = operators(VIEW, *even(5, 6 * MS)), ranges(60 * MS, 40 * MS)

    def told(ran_with: dict[str, Any], **given: float) -> dict[str, Any]:
        facts = CellFacts(noted={CELL: NotedFacts(loading=Loading(step_cores=2.0, **given))})
        table = cpu_verdicts.tabulate_cpu_verdicts(cells(100 * MS), parts, {CELL: own}, {CELL: ran_with}, RULES, facts)
        return table.to_dict("records")[0]

    few, many, sleeps = told({}, cores=2.0), told({}, cores=64.0), told({}, cores=2.0, loading_cores=0.0)
    assert (few["settings"], few["gain"]) == ("workers=1", pytest.approx(100 / 70.5))
    assert "from 2 workers on, but the 2 cores of this process then need 70.5 ms: load" in few["next_step"]
    assert (many["settings"], many["gain"]) == ("workers=2", pytest.approx(100 / 41))
    assert (sleeps["settings"], sleeps["gain"]) == ("workers=2", pytest.approx(100 / 41))
    # With workers, none is added that would have no core.
    limited = told({"workers": 2}, cores=2.0)
    assert (
        pd.isna(limited["settings"])
        and limited["gain"] == pytest.approx(2.5)
        and "decode and collate less" in limited["next_step"]
    )


def test_lines_that_make_a_batch_are_named_and_reading_is_told_from_collating() -> None:
    own = operators(VIEW, ("aten::cat", "(data)", "data", 1, 5 * MS), *even(5, MS))
    line = {"thread": "", "range": "data", "file": "data.py", "text": ""}
    lines: Any = [
        line | {"work": "reading", "line": 7, "function": "Images.__getitem__", "share": 0.4},
        line | {"work": "collating", "line": 21, "function": "collate", "share": 0.1},
        line | {"work": "", "line": 30, "function": "step", "share": 0.3, "range": "forward"},
    ]
    given = cells(10 * MS), ranges(5 * MS, 5 * MS), {CELL: own}, {CELL: {"workers": 0}}, RULES
    table = cpu_verdicts.tabulate_cpu_verdicts(*given, CellFacts(host_lines={CELL: lines}))
    assert table.iloc[0]["next_step"].startswith(
        "making one batch takes 5 ms; reading samples takes 40 % of the step (Images.__getitem__ at data.py:7, 40 % of the "
        "step), collating samples takes 10 % of the step (collate at data.py:21, 10 % of the step): loading a batch takes"
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


def test_without_a_call_that_does_nothing_no_call_is_told_to_be_short() -> None:
    own = operators(("aten::add", "a", "forward", 1000, 4e6))
    step = CpuStep(cells().iloc[0].to_dict(), {"forward": 10 * MS}, own, FLOOR)
    assert step.overhead == StepPart(0.0, 0.0) and np.isnan(step.floor_ns)
    assert step.share(StepPart(4e6, 1000)).value == pytest.approx(0.4)


# An operator has 2.6 of 10 ms, and others 7.4, none of them a quarter.
NEAR = operators(VIEW, ("aten::mm", "a", "forward", 1, 2.6 * MS), *even(8, 0.9 * MS))


@pytest.mark.parametrize(
    ("given", "why", "measured", "decides"),
    [
        # 2.6 of 10 ms, or 1.6 of 9; 1 - 0.74 / 0.75 of the time may be others'.
        ({"unsteady": "others", "cpu_taken_share": 0.1}, "others", "26%", "other programs take at most 1% (10% now) of the CPU's time"),
        # 2.6 of 10.74 ms at the least, and 2.86 of 10.26; with 1.05 times as much it would be a quarter.
        # 2.6 of 2.6 + 7.4 * 1.065 ms is just below a quarter.
        ({"unsteady": "processes differ", "step_upper_quartile_ns": 10.65 * MS}, "processes differ", "24.8% to 27%",
         "step times spread by at most 5% (6% now)"),
        ({"unsteady": "processes differ", "step_upper_quartile_ns": 11 * MS}, "processes differ", "24% to 28%",
         "step times spread by at most 5% (10% now)"),
        ({"step_median_ns": 7 * MS}, "the mean step is 1.4 times the median", "20% to 33%", "step times spread by at most 5% (43% now)"),
        (alike(25 * MS), "step times with and without the profiler differ by a factor of 2.5", "26%",
         "step times with and without the profiler differ by at most a factor of 2 (2.5 now)"),
    ],
)  # fmt: skip
def test_what_steps_that_are_not_steady_leave_open_is_undecided(
    given: dict, why: str, measured: str, decides: str
) -> None:
    """The interval is that of what was measured, whatever others may have added; and what would decide is said."""
    (_, found), *rest = judged(cells(**given), ranges(), NEAR).iterrows()
    assert not rest and found["verdict"] == UNDECIDED and found[["gain", "settings"]].isna().all()
    says = found["next_step"]
    assert says.startswith(
        f"operator-bound: {measured} of the step was measured, and 25% would be enough, undecided because {why}"
    )
    assert f"; it is decided if {decides}: {cpu_verdicts.MEASURE_AGAIN}" in says
    ends = [float(end.rstrip("%")) / 100 for end in measured.split(" to ")]
    assert found[["share_low", "share_high"]].tolist() == pytest.approx([ends[0], ends[-1]], abs=0.005)


@pytest.mark.parametrize(
    "given",
    [
        # A little less than the limits above, and a little more.
        lambda more: {"unsteady": "others", "cpu_taken_share": (1 - 0.74 / 0.75) * more},
        lambda more: {"step_upper_quartile_ns": 10 * MS * (1 + 0.054 * more)},
    ],
)
def test_what_is_said_to_decide_does(given: Any) -> None:
    quiet, busy = (judged(cells(**given(more)), ranges(), NEAR).iloc[0]["verdict"] for more in (0.98, 1.04))
    assert (quiet, busy) == ("operator-bound", UNDECIDED)


def test_where_no_rule_could_hold_nothing_is_left_open() -> None:
    (found,) = judged(cells(unsteady="drift"), ranges(), operators(VIEW, *even(10, MS))).to_dict("records")
    assert (found["verdict"], found["gain"]) == (verdicts.NOTHING, 1.0)
    assert found["next_step"] == "the longest operator, aten::0, takes 10% of the step"
    none = judged(cells(), ranges(), operators(("aten::mm", "(outside)", "outside", 1, 90 * MS))).iloc[0]
    assert none["next_step"] == "the longest operator, none, takes 0% of the step" and none["value"] == 0
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


def test_advice_on_a_cpu_is_tried_and_expected_under_one_name() -> None:
    """After all others where there may be a GPU, not at all on one."""
    config = configuration.normalise_config({"models": "lstm"})
    batch = settings.resolve_cell("lstm", "train", "time", config)["batch"]
    advice = [("input-bound", "workers=2"), ("overhead-bound", f"batch={2 * batch}")]
    row = {**dict.fromkeys(plan_columns.COLUMNS, ""), "model": "lstm", "phase": "train", "rank": 1, "advised": True,
           "gain": 1.5, "gain_low": 1.2, "gain_high": 2.0}  # fmt: skip
    table = pd.DataFrame([row | {"verdicts": verdict, "settings": words} for verdict, words in advice])
    for own, name in ((["bf16", "double_batch"], trial_table.DOUBLE_BATCH), (["bf16"], f"batch={2 * batch}")):
        config = configuration.normalise_config({"models": "lstm", "trials": {"panel": own}})
        found, _ = trial_table.candidate_words("lstm", "train", config)
        known = trial_table.expected_gains(table, config, {"lstm train": batch}, {})["lstm train"]
        told = {key: one["verdict"] for key, one in known.items()}
        assert told == {"workers=2": "input-bound", name: "overhead-bound"}
        assert known.keys() <= found.keys() and f"batch={2 * batch}" in found[name]
        assert len({tuple(words) for words in found.values()}) == len(found)
        of_cpus = ["workers=2"] if name == trial_table.DOUBLE_BATCH else ["workers=2", name]
        assert list(found)[-len(of_cpus) :] == of_cpus
    on_gpu = configuration.normalise_config({"models": "lstm", "device": "cuda"})
    assert "workers=2" not in trial_table.candidate_words("lstm", "train", on_gpu)[0]
    # Twice of what another cell has is not twice of this one's.
    assert trial_table.name_candidate("batch=6", config, 4) == "batch=6"


ROOF = {"precision": "fp32", "flop_per_s": 400e9, "bytes_per_s": 20e9}


@pytest.mark.parametrize(
    ("name", "flop", "moved", "rate", "cured", "advice"),
    [
        # 4e8 operations in 8 ms are 50 Gflop/s, an eighth of the roof; half of the time can be saved, as without a roof.
        (
            "aten::mm",
            4e8,
            1e6,
            "50 of the 400 Gflop/s that a large fp32 product reaches here (12%)",
            0.5,
            "larger batch",
        ),
        ("aten::mkldnn_convolution", 4e8, 1e6, "(12%)", 0.5, "channels_last: true"),
        # 2.56e9 in 8 ms are 320: a fifth of the time can be saved until the roof.
        (
            "aten::mm",
            2.56e9,
            1e6,
            "320 of the 400 Gflop/s that a large fp32 product reaches here (80%)",
            0.2,
            "less work",
        ),
        # 1.2e8 bytes in 8 ms are 15 GB/s, three quarters of what a copy reaches.
        ("aten::add", 1e6, 1.2e8, "15 of the 20 GB/s that a large copy reaches here (75%)", 0.25, "less work"),
        ("aten::add", 1e6, 1.6e7, "2 of the 20 GB/s that a large copy reaches here (10%)", 0.5, "in place"),
        # From a cache, faster than memory: nothing is to be had.
        ("aten::add", 1e6, 3.2e8, "40 of the 20 GB/s that a large copy reaches here (200%)", 0.0, "less work"),
    ],
)
def test_an_operator_is_compared_with_the_roof_of_its_cpu(
    name: str, flop: float, moved: float, rate: str, cured: float, advice: str
) -> None:
    needs = {"needed_flop": [np.nan, flop], "needed_bytes": [np.nan, moved], "needed_share": [0.0, 1.0]}
    own = operators(VIEW, (name, "head", "forward", 1, 8 * MS)).assign(**needs)
    noted = CellFacts(noted={CELL: NotedFacts(roof=ROOF)})  # type: ignore[arg-type]
    given = cells(), ranges(), {CELL: own}, {CELL: {"channels_last": False}}, RULES
    found = cpu_verdicts.tabulate_cpu_verdicts(*given, noted).iloc[0]
    assert found["verdict"] == "operator-bound" and found["function"] == name
    assert rate in found["next_step"] and advice in found["next_step"]
    assert found["cured"] == pytest.approx(cured) and found["gain"] == pytest.approx(1 / (1 - 0.8 * cured), rel=0.001)
    # Without a roof, or where other programs lengthened the steps, nothing is said to be far from it.
    busy = cells(unsteady="others", cpu_taken_share=0.1), *given[1:], noted
    for other in (given, busy):
        plain = cpu_verdicts.tabulate_cpu_verdicts(*other).iloc[0]
        assert plain["verdict"] == "operator-bound" and plain["cured"] == 0.5
        assert "what the CPU can do" not in plain["next_step"] and "reaches here" not in plain["next_step"]


def test_the_roof_is_the_shortest_product_and_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 * 8 ** 3 operations in half a second, and 64 bytes that are read and written; the first call does not count."""
    for name, value in (("ORDER", 8), ("COPIED_BYTES", 64), ("ROOF_CALLS", 3)):
        monkeypatch.setattr(devices, name, value)
    clock = iter([0.0, 2.0, 3.0, 3.5, 4.0, 8.0] * 4)
    monkeypatch.setattr(devices.time, "perf_counter", lambda: next(clock))
    assert devices.measure_cpu_roof("fp32") == {"precision": "fp32", "flop_per_s": 2048, "bytes_per_s": 256}
    assert devices.measure_cpu_roof("bf16")["precision"] == "bf16"


def apart(own: pd.DataFrame, data_ns: float = 0.0, forward_ns: float = 10 * MS, **given: Any) -> CpuStep:
    times = {"data": data_ns, "forward": forward_ns}
    return CpuStep(cells(**given).iloc[0].to_dict(), times, own, FLOOR, RULES["floors"]["stretch"])


@pytest.mark.parametrize(
    ("rows", "median"),
    [
        # Of means 1, 2 and 4: half of 3 and 1 calls is at 1; of 1, 1 and 2 at 2.
        ([(3, 3.0), (1, 4.0)], 1.0),
        ([(1, 4.0), (1, 1.0), (2, 4.0)], 2.0),
        # As many below as above: the lower one.
        ([(2, 8.0), (2, 2.0)], 1.0),
        ([(1, 8.0), (4, 8.0), (1, 1.0)], 2.0),
        ([], np.nan),
    ],
)
def test_the_median_call(rows: list[tuple[float, float]], median: float) -> None:
    table = pd.DataFrame(rows, columns=["launches", "total_ns"], dtype="float64")
    assert cpu_verdicts._median(table) == pytest.approx(median, nan_ok=True)


def test_a_step_taken_apart() -> None:
    """A view takes 1 us, so that below 6 a call is brief: 100 calls of 5 us, not 10 of 6.

    Of 12 ms, 1 by its input, operators take 0.004, 0.5 and 0.06; 10.436 ms between 114 calls is more than is brief.
    """
    own = operators(VIEW, ("aten::add", "a", "forward", 100, 5e5), ("aten::mul", "a", "forward", 10, 6e4),
                    ("aten::cat", "(data)", "data", 2, 1e5), ("aten::mm", "(outside)", "forward", 9, 9e9),
                    ("aten::no", "a", "forward", 0, 7e9))  # fmt: skip
    step = apart(own, MS, 11 * MS, step_ns=12 * MS)
    assert (step.ns, step.calls, step.floor_ns, step.brief_ns) == (12 * MS, 116, 1e3, 6e3)
    assert step.input == StepPart(MS, 2) and step.overhead == StepPart(5.04e5, 104)
    assert step.longest()["operator"].tolist() == ["aten::mul"]
    # In 1.22 ms there are 0.656 between 114 calls, 5.75 us each: as short as calls, and their overhead.
    assert apart(own, MS, 1.22 * MS, step_ns=2.22 * MS).overhead == StepPart(pytest.approx(5.04e5 + 6.56e5), 104)
    # Exactly 6 us each are not below.
    assert apart(own, MS, 0.564 * MS + 114 * 6e3, step_ns=2 * MS).overhead.ns == pytest.approx(5.04e5)
    # Operators that take longer than the step leave nothing between them.
    assert apart(own, MS, 0.4 * MS, step_ns=2 * MS).overhead == StepPart(5.04e5, 104)


def test_what_needs_are_known_of() -> None:
    """Of 4 ms a quarter is of calls whose needs are known; the longest operator first, and its longest place."""
    own = operators(VIEW, ("aten::mm", "a", "forward", 1, 4 * MS), ("aten::mm", "b", "backward", 2, 5 * MS),
                    ("aten::tanh", "a", "forward", 1, 9.5 * MS))  # fmt: skip
    own = own.assign(needed_flop=[np.nan, 8e6, np.nan, 1e6], needed_share=[np.nan, 0.25, 0.0, 1.0])
    step = apart(own, 0.0, 20 * MS)
    longest = step.longest()
    assert longest["operator"].tolist() == ["aten::tanh", "aten::mm"]
    assert longest["total_ns"].tolist() == [9.5 * MS, 9 * MS] and longest["launches"].tolist() == [1, 3]
    assert longest["needed_ns"].tolist() == [9.5 * MS, MS] and longest["needed_flop"].tolist() == [1e6, 8e6]
    assert step.places("aten::mm")["module"].tolist() == ["b", "a"]


@pytest.mark.parametrize(
    ("traced", "step_ns", "a_call", "longer"),
    [
        # 4 calls that take 1 us each make 10 ms longer by no more than that: 2 us by half a us, 20 us by one.
        (10.002, 10, 500, 1.0),
        (10.02, 10, 1e3, 10.016 / 10),
        (9.0, 10, 0, 0.9),
        (20.004, 10, 1e3, 2.0),
    ],
)
def test_what_the_profiler_takes_of_a_call(traced: float, step_ns: float, a_call: float, longer: float) -> None:
    step = apart(operators(VIEW), 0.0, traced * MS, step_ns=step_ns * MS)
    assert step.a_call_ns == pytest.approx(a_call) and step.longer == pytest.approx(longer)
    assert step.apart == pytest.approx(max(longer, 1 / longer))


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        # A quarter of 10 ms, of 10 traced ones.
        ({}, 0.25, 0.25),
        # Times from 8 to 10 ms, or to 12.5: 1.25 times as much of the part or of all else.
        ({"step_lower_quartile_ns": 8 * MS}, 2.5 / 11.875, 3.125 / 10.625),
        ({"step_upper_quartile_ns": 12.5 * MS}, 2.5 / 11.875, 3.125 / 10.625),
        ({"step_median_ns": 8 * MS}, 2.5 / 11.875, 3.125 / 10.625),
        # Others took 0.2: of 8 ms 0.5 or 2.5.
        ({"cpu_taken_share": 0.2}, 0.0625, 0.3125),
        ({"cpu_taken_share": 0.5}, 0.0, 0.5),
        ({"cpu_taken_share": 0.9}, 0.0, 1.0),
        ({"cpu_taken_share": 1.0}, 0.0, 1.0),
        # Four times as long without the profiler: what is beyond may be any part's.
        (alike(40 * MS), 0.0625, 1 - 0.75 / 4),
        # Twice as long is as far as a slow machine explains.
        (alike(20 * MS), 0.25, 0.25),
    ],
)
def test_the_ends_of_a_share(given: dict[str, float], least: float, most: float) -> None:
    # Without a call that does nothing, the profiler takes nothing of calls.
    step = apart(operators(("aten::add", "a", "forward", 1, 1e3)), **given)
    found = step.share(StepPart(2.5 * MS, 0.0))
    assert (found.value, found.least, found.most) == pytest.approx((0.25, least, most))


@pytest.mark.parametrize(("traced", "least", "most"), [(20.0, 0.25, 0.25), (40.0, 0.0, 1.0), (25.0, 0.0, 0.625)])
def test_what_steps_are_longer_by_under_the_profiler(traced: float, least: float, most: float) -> None:
    """A quarter of steps of 10 ms: twice as long is the machine, beyond it may be of the part alone or of all else."""
    step = apart(operators(("aten::add", "a", "forward", 1, 1e3)), 0.0, traced * MS)
    found = step.share(StepPart(traced * MS / 4, 0.0))
    assert (found.least, found.most) == pytest.approx((least, most))


def test_a_part_of_nothing_has_no_share() -> None:
    assert [cpu_verdicts._part(ns, others) for ns, others in ((0.0, 0.0), (1.0, 3.0), (2.0, 0.0))] == [0, 0.25, 1]


def test_an_operator_in_words() -> None:
    for calls, rate, said in ((1.0, "", "1 call per step"), (2.5, "5 Gflop/s", "2.5 calls per step, 5 Gflop/s")):
        found = cpu_verdicts._describe_operator("op", {"launches": calls}, cpu_verdicts.OperatorRate(rate))
        assert found == f"op, {said}"


@pytest.mark.parametrize(("share", "verdict"), [(0.25, "operator-bound"), (0.2499, verdicts.NOTHING)])
def test_an_operator_binds_from_its_threshold_on(share: float, verdict: str) -> None:
    own = operators(("aten::mm", "a", "forward", 1, share * 10 * MS))
    found = judged(cells(), ranges(), own)
    assert found["verdict"].iloc[0] == verdict and found["share"].iloc[0] == pytest.approx(share)


@pytest.mark.parametrize(("part", "layers"), [(0.1001, ["a", "b"]), (0.0999, ["a"])])
def test_layers_are_named_from_a_tenth_of_the_step_on(part: float, layers: list[str]) -> None:
    own = operators(("aten::mm", "a", "forward", 1, 4 * MS), ("aten::mm", "b", "forward", 1, part * 10 * MS))
    found = judged(cells(), ranges(), own)
    assert found.loc[found["level"] == "layer", "module"].tolist() == layers
    assert found["rank"].tolist() == [1, *range(1, len(layers) + 1)]
    # No layer of what the cell is not bound by.
    few = operators(("aten::mm", "a", "forward", 1, 2 * MS))
    assert judged(cells(), ranges(), few)["level"].tolist() == ["cell"]


def test_cells_and_layers_come_by_their_gain() -> None:
    """Operators have 0.3 and 0.41 of the step, input 0.3, a third of which is to be received from workers all the same."""
    own = operators(("aten::mm", "a", "forward", 1, 3 * MS), ("aten::conv", "a", "forward", 1, 4.1 * MS))
    found = judged(cells(), ranges(2.9 * MS, 7.1 * MS), own)
    of_cell = found[found["level"] == "cell"]
    assert of_cell["function"].fillna("").tolist() == ["aten::conv", "", "aten::mm"]
    assert of_cell["gain"].tolist() == pytest.approx([1 / (1 - 0.205), 1 / (0.71 + 0.1), 1 / 0.85])
    assert found.loc[found["level"] == "layer", "function"].tolist() == ["aten::conv", "aten::mm"]


def test_what_is_left_open_comes_last_and_once_a_rule() -> None:
    """Two operators that may have 0.25 of the step or less: the larger one is named, beside the input that is sure."""
    own = operators(("aten::mm", "a", "forward", 1, 2.5 * MS), ("aten::conv", "a", "forward", 1, 2.6 * MS))
    spread = cells(step_lower_quartile_ns=8 * MS)
    found = judged(spread, ranges(2 * MS, 8 * MS), own)
    assert found["verdict"].tolist() == ["input-bound", UNDECIDED] and "potential" not in found
    low, high = 2.6 / (2.6 + 7.4 * 1.25), 2.6 * 1.25 / (2.6 * 1.25 + 7.4)
    assert found[["share_low", "share_high"]].iloc[1].tolist() == pytest.approx([low, high])
    assert found["next_step"].iloc[1].startswith(
        "operator-bound: 22% to 31% of the step was measured, and 25% would be enough, undecided because its steps "
        "vary; it is decided if step times spread by at most 5% (25% now): stop other"
    )  # fmt: skip
    # Where steps are not steady one line says so of all.
    given = cells(step_lower_quartile_ns=2 * MS, unsteady="it drifts")
    (one,) = judged(given, ranges(2 * MS, 8 * MS), own).to_dict("records")
    assert one["verdict"] == UNDECIDED
    assert "undecided because it drifts; it is decided if step times spread" in one["next_step"]


APART = "step times with and without the profiler differ by a factor of {}, more than its overhead explains"


@pytest.mark.parametrize(
    ("given", "traced", "said"),
    [
        ({"unsteady": "it drifts"}, 10.0, "it drifts"),
        ({"unsteady": np.nan}, 10.0, ""),
        ({"step_median_ns": 10 * MS / 1.3}, 10.0, ""),
        ({"step_median_ns": 10 * MS / 1.301}, 10.0, "the mean step is 1.301 times the median"),
        ({}, 20.0, ""),
        ({}, 20.1, APART.format("2.01")),
        ({}, 5.0, ""),
        ({}, 4.9, APART.format("2.04")),
    ],
)
def test_why_steps_are_not_relied_on(given: dict[str, Any], traced: float, said: str) -> None:
    cell, own = cells(**given).iloc[0].to_dict(), operators(("aten::mm", "a", "forward", 1, MS))
    step = CpuStep(cell, {"forward": traced * MS}, own, FLOOR, 2.0)
    assert cpu_verdicts.CpuCellJudge(cell, step, {}, RULES)._unsteady() == said


def test_only_cells_that_torch_saw_on_a_cpu_are_judged() -> None:
    """Each once; one that was not timed, has no operators or took no time is left out."""
    parts = ranges()
    assert cpu_verdicts.cpu_cells(pd.concat([parts, parts])) == [CELL]
    assert cpu_verdicts.cpu_cells(ranges(clock="gpu")) == []
    assert cpu_verdicts.cpu_cells(parts.assign(tool="nsys")) == []
    known = rules.load_rules()
    assert cpu_verdicts.tabulate_cpu_verdicts(cells().iloc[:0], parts, {CELL: BIG}, {}, known).empty
    assert cpu_verdicts.tabulate_cpu_verdicts(cells(), parts, {}, {}, known).empty
    assert cpu_verdicts.tabulate_cpu_verdicts(cells(), ranges(0.0, 0.0), {CELL: BIG}, {}, known).empty
    other = parts.assign(tool="nsys", ns_per_step=9e9)
    found = cpu_verdicts.tabulate_cpu_verdicts(cells(), pd.concat([parts, other]), {CELL: BIG}, {}, known)
    assert found["share"].iloc[0] == pytest.approx(0.85) and found["by"].eq(BY_PROFZOO).all()


def a_step(**given: float) -> CpuStep:
    """10 ms under the profiler and 8 ms without, in 1000 calls of at least 1 us; nothing else disturbed it."""
    step = object.__new__(CpuStep)
    known = {"ns": 1e7, "step_ns": 8e6, "calls": 1000.0, "spread": 1.0, "floor_ns": 1e3, "taken": 0.0, "stretch": 9.0}
    for name, value in {**known, **given}.items():
        setattr(step, name, value)
    return step


@pytest.mark.parametrize(
    ("given", "part", "right"),
    [
        # Each call loses 1 us: a part of 6 ms in 500 calls has 5.5 of 9 ms, or 6 of 10 ms with the profiler's time.
        ({}, StepPart(6e6, 500.0), (5.5 / 9, 0.6, 5.5 / 9)),
        ({}, StepPart(6e6, 1000.0), (5 / 9, 5 / 9, 0.6)),
        ({}, StepPart(6e6, 0.0), (6 / 9, 0.6, 6 / 9)),
        # A slower call cannot take less than nothing of the rest.
        ({}, StepPart(1e7, 0.0), (1.0, 1.0, 1.0)),
        ({}, StepPart(2e7, 2000.0), (1.0, 1.0, 1.0)),
        ({}, StepPart(1e5, 500.0), (0.0, 0.0, 0.01)),
        # Steps spread by a factor of two: the part alone may have taken half or twice as long as the rest.
        ({"spread": 2.0}, StepPart(6e6, 1000.0), (5 / 9, 5 / 13, 12 / 16)),
        # Nothing is known of an empty call, so nothing is taken off.
        ({"floor_ns": float("nan")}, StepPart(6e6, 1000.0), (0.6, 0.6, 0.6)),
    ],
)
def test_shares_of_a_step_by_hand(given: dict[str, float], part: StepPart, right: tuple[float, ...]) -> None:
    found = a_step(**given).share(part)
    assert (found.value, found.least, found.most) == pytest.approx(right)
