"""Plans of what ncu collects: estimates from what was measured, and what a budget or an error pays for."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.config import configuration as config
from profzoo.errors import DataError
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.tools.ncu import launch_selection, multi_run, run_planning
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.ncu.costs import MEASURED, PARTS, Cost
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.ncu.launch_selection import RunPrices
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from tests import slow

COSTS = ncu_costs.load_costs()
START = 4.0


@pytest.fixture(scope="module")
def census(recording: Callable) -> pd.DataFrame:
    """Every launch of a step of MobileNetV2's training."""
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    names, _ = ncu_tables.read_raw(recording("ncu/launch.raw.demangled.csv"))
    return ncu_tables.tidy_launches(raw, units, names, None)[0]


def plan_step(census: pd.DataFrame, name: str = "roofline", **given: object) -> dict:
    """The plan of a set, of one launch of each configuration unless other are asked for, for a process that takes START
    without a launch."""
    options = config.normalise_config({"ncu": {"launches": "distinct"} | given})["ncu"]
    price = ncu_costs.estimate_cost(options["sets"][name], COSTS)
    return run_planning.plan_collection(options, name, census, START, price, COSTS)


def test_everything_is_profiled_without_a_budget(census: pd.DataFrame) -> None:
    planned = plan_step(census)
    assert planned["launches"] == planned["configurations"] == planned["configurations_of_window"] == 186
    assert planned["share"] == 1 and planned["replay"] == "kernel" and planned["basis"] == "measured"
    assert planned["estimate_s"] == pytest.approx(
        START + 186 * COSTS["sets"]["roofline"]["seconds"] + (len(census) - 186) * COSTS["passed_over_s"], abs=1e-3
    )
    words = ncu.selection_options(config.normalise_config({})["ncu"], "roofline")
    assert planned["options"] == ["--replay-mode", "kernel", *words]
    assert launch_selection.profiled_launches(census, planned["options"]).equals(census.drop_duplicates(KEYS))
    assert planned["error"] is None and planned["runs"] == 1
    assert run_planning.describe_plan(planned) == (
        "ncu roofline: 186 launches, 186 of 186 configurations, 100.0% of GPU time, 6 passes, kernel replay: about 39 s"
    )
    some = plan_step(census, kernel_name="cudnn")
    assert 0 < some["configurations"] < 186 and 0 < some["share"] < 1 and "regex:cudnn" in some["options"]
    taken = launch_selection.profiled_launches(census, some["options"])
    assert len(taken) == some["launches"] and taken["mangled"].str.contains("cudnn").all()
    assert plan_step(census, launches="all")["launches"] == len(census)
    assert plan_step(census, launches=20)["options"] == ["--replay-mode", "kernel", "--launch-count", "20"]


@pytest.mark.parametrize("budget", slow.first([6, "20s", "10s", "30s"], 2))
def test_a_budget_is_kept_and_spent_on_what_takes_longest(census: pd.DataFrame, budget: str | int) -> None:
    # Names are taken literally.
    census = census.assign(mangled=census["mangled"] + ".part.0$")
    planned = plan_step(census, budget=budget)
    limit = ncu.parse_budget(budget)
    assert planned["estimate_s"] <= limit and planned["configurations"] < 186
    # Each launch that is left out would have cost more than what is left.
    assert limit - planned["estimate_s"] < 8 * planned["launch_s"]
    taken = launch_selection.profiled_launches(census, planned["options"])
    assert len(taken) == planned["launches"] and re.search(r"part\\\.0\\\$", planned["options"][-1])
    covered = taken[KEYS].drop_duplicates().merge(census, on=KEYS)
    assert len(taken[KEYS].drop_duplicates()) == planned["configurations"]
    assert covered[GPU_TIME].sum() / census[GPU_TIME].sum() == pytest.approx(planned["share"], abs=1e-6)
    assert planned["share"] > planned["configurations"] / 186
    longest = census.groupby(KEYS)[GPU_TIME].sum().idxmax()
    assert (taken[KEYS].apply(tuple, axis=1) == longest).any()


def test_launches_are_chosen_for_an_error(census: pd.DataFrame, tmp_path: Path) -> None:
    planned = plan_step(census, launches="sampled")
    assert 186 < planned["launches"] <= 1.5 * 186 and planned["error"] <= 0.02 and planned["configurations"] == 186
    assert f"{planned['launches']} launches, 186 of 186 configurations, 100.0% of GPU time, totals within" in (
        run_planning.describe_plan(planned)
    )
    larger = plan_step(census, launches="sampled", error="50%")
    assert (larger["launches"], larger["runs"]) == (186, 1)
    words = ncu.selection_options(config.normalise_config({})["ncu"], "roofline")
    assert larger["options"] == ["--replay-mode", "kernel", *words]
    # Runs profile what the plan says.
    runs = ncu.run_options(planned["options"])
    assert len(runs) == planned["runs"]
    taken = [launch_selection.profiled_launches(census, words) for words in runs]
    assert sum(map(len, taken)) == planned["launches"]
    assert len(pd.concat(taken)[KEYS].drop_duplicates()) == 186
    process = START + len(census) * COSTS["passed_over_s"]
    each = COSTS["sets"]["roofline"]["seconds"] - COSTS["passed_over_s"]
    assert planned["estimate_s"] == pytest.approx(len(runs) * process + planned["launches"] * each, abs=1e-2)
    # Several runs are one command.
    assert planned["runs"] > 1
    made = {"report": tmp_path / "x.ncu-rep", "more": tmp_path / "x.ncu-more"}
    words = [*ncu.wrap_command([*planned["options"], "--set", "full"], made, 1), "python", "run.py"]
    commands = multi_run.split_commands(words[len(ncu.SEVERAL) :])
    assert len(commands) == planned["runs"]
    for number, (command, own) in enumerate(zip(commands, ncu.run_options(planned["options"]), strict=True), 1):
        report = made["report"] if number == 1 else made["more"] / f"{number}.ncu-rep"
        assert command == [
            "ncu", *own, "--replay-mode", "kernel", "--set", "full", "--export", str(report), "python", "run.py"
        ]  # fmt: skip


def test_processes_that_are_started_together_run_once(census: pd.DataFrame) -> None:
    options = config.normalise_config({"ncu": {"error": "0.5%"}})["ncu"] | {"one_run": True}
    price = ncu_costs.estimate_cost(options["sets"]["roofline"], COSTS)
    planned = run_planning.plan_collection(options, "roofline", census, START, price, COSTS)
    assert planned["runs"] == 1 and planned["launches"] > 186


# Launches that are passed over, and passes of a whole process, cost nothing but where a test says so.
FREE = {"passed_over_s": 0.0, "application_pass_s": 0.0}


def launches_of(kernels: str, times: list[float] | float) -> pd.DataFrame:
    """Launches of kernels of one letter each, in ns."""
    table = pd.DataFrame({"mangled": list(kernels), "range": "", GPU_TIME: times})
    return table.assign(**dict.fromkeys(KEYS[1:], 1))


def plan(table: pd.DataFrame, start_s: float, price: Cost, costs: dict = FREE, **given: Any) -> dict:
    options = config.normalise_config({"ncu": {"replay": "kernel"} | given})["ncu"]
    return run_planning.plan_collection(options, "roofline", table, start_s, price, costs)


def estimate(passes: int = 1, seconds: float = 2.0, start: float = 2.0, over: float = 0.0, each: float = 1.0) -> Any:
    return run_planning._Estimate(start, 10, Cost(passes, seconds), over, each)


def test_seconds_of_one_run_and_of_three() -> None:
    """Starting takes 4 s, and ten launches that are passed over 5 s; two that are not are counted at 2 s less 0.5 s."""
    found = estimate(start=4.0, over=0.5, passes=3)
    assert found.seconds("kernel", 2) == 4 + 5 - 1 + 4
    assert found.seconds("kernel", 2, 3) == 3 * 9 - 1 + 4
    assert found.seconds("application", 2) == 3 * (9 - 1 + 2 * 1.0)
    assert found.each("kernel") == 1.5 and found.each("application") == 1.5
    assert estimate(seconds=0.25, over=0.5).each("kernel") == 1e-6
    assert found.prices("kernel", 7, 50.0) == RunPrices(9.0, 1.5, 7, 50.0)
    assert found.affordable("kernel", 9 + 3 * 1.5) == 3 and found.affordable("kernel", 9 + 3 * 1.5 - 0.1) == 2


@pytest.mark.parametrize(("each", "replay"), [(1.0, "kernel"), (0.99, "application"), (1.5, "kernel")])
def test_application_replay_is_taken_below_three_quarters(each: float, replay: str) -> None:
    """Of one launch 4 s in kernel replay; three quarters of it are no less."""
    assert estimate(each=each).cheaper(1) == replay


def test_what_a_plan_says_is_rounded() -> None:
    """Of a, b and c, each a third of the time, 9 s pay for one launch: two would take 9.37 s."""
    table = launches_of("abc", 1e4)
    price = Cost(3, 4.1234567)
    found = plan(table, 1.1234567, price, launches="distinct", budget=9.0)
    assert found["share"] == 0.333333 and found["start_s"] == 1.123 and found["launch_s"] == 4.12346
    assert found["estimate_s"] == 5.247 and found["launches"] == 1 and found["configurations_of_window"] == 3
    assert (found["passes"], found["basis"], found["runs"], found["error"]) == (3, MEASURED, 1, None)


def test_a_budget_that_is_just_enough_pays_for_all() -> None:
    """Starting takes 4 s, two launches 2 s."""
    table = launches_of("ab", [1e4, 2e4])
    assert plan(table, 4.0, Cost(1, 1.0), launches="distinct", budget=6.0)["launches"] == 2
    assert "--kernel-id" not in plan(table, 4.0, Cost(1, 1.0), launches="distinct", budget=6.0)["options"]
    one = plan(table, 4.0, Cost(1, 1.0), launches="distinct", budget=5.0)
    assert (one["launches"], one["share"], one["options"][-1]) == (1, 0.666667, "::regex:^(b)$:^(1)$")
    with pytest.raises(DataError, match=r"starting takes 4 s and a launch 1\.00 s; give 6s or more"):
        plan(table, 4.0, Cost(1, 1.0), launches="distinct", budget=4.9)


@pytest.mark.parametrize(("asked", "replay"), [("auto", "kernel"), ("application", "application")])
def test_a_budget_that_does_not_suffice_is_spent_in_kernel_replay(asked: str, replay: str) -> None:
    """Ten launches take 1 + 10 s in kernel replay, two processes of 1 + 5 s in application replay, which is cheaper."""
    costs = {"passed_over_s": 0.0, "application_pass_s": 0.5}
    found = plan(
        launches_of("abcdefghij", 1e4), 1.0, Cost(2, 2.0), costs, replay=asked, launches="distinct", budget=10.0
    )
    assert found["replay"] == replay and found["options"][:2] == ["--replay-mode", replay]
    # Of 9 s, launches take 2 s each, and of application replay's 8 s, 1 s each.
    assert found["launches"] == {"kernel": 4, "application": 8}[replay]


ALIKE = launches_of("a" * 10, 5e4)


def test_a_sample_has_to_save_a_tenth() -> None:
    """One of ten launches takes 80 + 1 s, all 80 + 10 s, nine tenths of which are 81 s."""
    every = plan(ALIKE, 80.0, Cost(1, 1.0), error="100%")
    assert (every["launches"], every["error"], every["estimate_s"]) == (10, 0.0, 90.0)
    # Of one of ten, 1.6449 times the square root of 0.009 is left open.
    assert every["instead_of"] == {"launches": 1, "runs": 1, "error": 0.15605, "estimate_s": 81.0}
    some = plan(ALIKE, 79.9, Cost(1, 1.0), error="100%")
    assert (some["launches"], some["error"], some["estimate_s"]) == (1, 0.15605, 80.9) and "instead_of" not in some
    # All are taken if the budget pays for them, and where all launches are the sample there is nothing to say of others.
    for budget, launches in ((90.0, 10), (89.9, 1)):
        assert plan(ALIKE, 80.0, Cost(1, 1.0), error="100%", budget=budget)["launches"] == launches
    found = plan(launches_of("a", 1e4), 5.0, Cost(1, 1.0))
    assert found["launches"] == 1 and "instead_of" not in found and "--launch-count" in found["options"]


@pytest.mark.parametrize(("asked", "replay", "estimate_s"), [("auto", "application", 2.2), ("kernel", "kernel", 2.0)])
def test_all_launches_in_the_replay_that_is_cheaper_for_them(asked: str, replay: str, estimate_s: float) -> None:
    """One launch takes 1 + 1 s in kernel replay and 2 * 1.01 s else; ten 11 s and 2 * 1.1 s, which is not much more."""
    costs = {"passed_over_s": 0.0, "application_pass_s": 0.01}
    found = plan(ALIKE, 1.0, Cost(2, 1.0), costs, replay=asked, error="100%")
    assert (found["replay"], found["estimate_s"]) == (replay, estimate_s)
    assert found.get("instead_of", {}).get("estimate_s") == (2.0 if asked == "auto" else None)


@pytest.mark.parametrize(
    ("configurations", "error", "most"),
    [(100, 0.02, 150), (80, 0.02, 120), (79, 0.02, 119), (10, 0.02, 50), (100, 0.01, 300), (100, 0.04, 150)],
)
def test_the_most_launches_for_an_error(configurations: int, error: float, most: int) -> None:
    """Half as many again, or forty more; times as many as the error is smaller than 2 %, and no less for a larger."""
    assert run_planning.most_launches(configurations, error) == most


FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


def known_of(kernels: str) -> Any:
    """What earlier reports tell of launches of `launches_of`."""
    columns = [*KEYS, FFMA]
    rows = [[kernel, *[1] * (len(KEYS) - 1), 1] for kernel in kernels]
    return {"columns": columns, "rows": rows, "units": {}, "sources": ["bert/train.ncu.roofline.csv"]}


def plan_apart(kernels: str, known: str, start_s: float = 1.0, precision: str = "fp32", **given: Any) -> dict:
    """The plan of set roofline, whose launches take 10 s each, if earlier reports tell the operations of some kernels."""
    options = config.normalise_config({"ncu": given})["ncu"]
    costs = {**COSTS, "passed_over_s": 0.0, "application_pass_s": 9.0}
    told = run_planning.Told(precision, known_of(known) if known else None)
    table = launches_of(kernels, 1e4)
    return run_planning.plan_collection(options, "roofline", table, start_s, Cost(6, 10.0), costs, told)


# A launch with all that takes 10 s takes so long in passes of its own.
DEARER = 10 / COSTS["sets"]["roofline"]["seconds"]
FIRST, ALONE = COSTS["metrics"][0]["seconds"] * DEARER, COSTS["alone_s"] * DEARER


@pytest.mark.parametrize(
    ("known", "profiled", "estimate_s"),
    [
        ("", [["a", "b", "c", "d"]] * 3, 3 + 4 * FIRST + 8 * ALONE),
        ("abcd", [["a", "b", "c", "d"]], 1 + 4 * FIRST),
        ("ad", [["a", "b", "c", "d"], ["b", "c"], ["b", "c"]], 3 + 4 * FIRST + 4 * ALONE),
    ],
)
def test_operations_are_counted_apart_and_only_if_they_are_unknown(
    known: str, profiled: list[list[str]], estimate_s: float
) -> None:
    found = plan_apart("abcd", known)
    assert (found["runs"], found["launches"], found["share"]) == (len(profiled), 4, 1)
    assert found["joined"] == len(profiled) - 1 and ("known" in found) == bool(known) and found["passes"] == 1
    assert found["estimate_s"] == pytest.approx(estimate_s, abs=1e-3)
    runs = ncu.run_options(found["options"])
    table = launches_of("abcd", 1e4)
    assert [launch_selection.profiled_launches(table, words)["mangled"].tolist() for words in runs] == profiled
    first, *further = (words[words.index("--metrics") + 1].split(",") for words in runs)
    assert {GPU_TIME, "dram__bytes_read.sum", "sm__inst_executed_pipe_tensor_op_hmma.sum"} < {*first}
    assert not [one for one in first if "sass" in one or "ops_path" in one]
    told = [[one.split("__")[1][:14] for one in metrics if not one.startswith("launch__")] for metrics in further]
    assert told == [["sass_thread_in"] * 9, ["ops_path_tenso"]][: len(further)]
    assert run_planning.describe_plan(found).endswith(
        f", operations of {len(known)} configurations from bert/train.ncu.roofline.csv" if known else " s"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"launches": "distinct"},
        {"kernel_name": "a|b"},
        {"replay": "application"},
        {"precision": "fp8"},
        {"sets": {"roofline": {"sections": ["LaunchStats"], "metrics": [GPU_TIME]}}},
        {"sets": {"roofline": {"metrics": [FFMA]}}},
        {"sets": {"roofline": {"metrics": [GPU_TIME]}}},
        # Two more starts take longer than passes of four launches, and no memory is counted.
        {"start_s": 60.0, "sets": {"roofline": {"metrics": [GPU_TIME, FFMA]}}},
    ],
)
def test_all_is_counted_at_once_where_nothing_else_is_cheaper(given: dict) -> None:
    found = plan_apart("abcd", "", **given)
    assert "joined" not in found and "--metrics" not in found["options"]


def test_bytes_are_counted_in_a_single_pass_even_if_that_takes_longer() -> None:
    """To restore memory between passes writes to DRAM, which ncu would count."""
    found = plan_apart("abcd", "", start_s=60.0)
    assert found["joined"] == 2 and found["passes"] == 1


def test_a_budget_pays_for_more_in_single_passes() -> None:
    """Of 12 s, a start and one launch of 10 s take 11, and three starts and all launches in passes of their own 16."""
    assert "joined" not in plan_apart("abcd", "", budget=12.0)
    found = plan_apart("abcd", "abcd", budget=12.0)
    assert found["share"] == 1 and found["estimate_s"] <= 12


PLANNED = {
    "set": "own", "replay": "kernel", "launches": 7, "runs": 1, "configurations": 5, "configurations_of_window": 6,
    "share": 0.987, "error": None, "passes": 1, "basis": MEASURED, "estimate_s": 12.3,
}  # fmt: skip
INSTEAD = "1 pass, kernel replay: about 12 s, all launches in one run, as 3 in"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, "1 pass, kernel replay: about 12 s"),
        ({"error": 0.0}, "1 pass, kernel replay: about 12 s"),
        ({"passes": 2}, "2 passes, kernel replay: about 12 s"),
        ({"runs": 2}, "1 pass, kernel replay in 2 runs: about 12 s"),
        ({"basis": PARTS}, "1 pass, kernel replay: at most about 12 s"),
        (
            {"error": 0.0123},
            "totals within 1.2% if launches of similar times do similar work, 1 pass, kernel replay: about 12 s",
        ),
        ({"instead_of": {"launches": 3, "runs": 1, "estimate_s": 11.6}}, f"{INSTEAD} one run would take 12 s"),
        ({"instead_of": {"launches": 3, "runs": 2, "estimate_s": 14.4}}, f"{INSTEAD} 2 runs would take 14 s"),
    ],
)
def test_a_plan_in_one_line(other: dict, words: str) -> None:
    said = f"ncu own: 7 launches, 5 of 6 configurations, 98.7% of GPU time, {words}"
    assert run_planning.describe_plan(PLANNED | other) == said


def test_what_starting_takes_by_the_census() -> None:
    costs = {"sets": {"launch": {"seconds": 0.004}}, "nsys_more_s": 4.4}
    assert run_planning._start_s(7.0, 500, False, False, costs) == 5.0
    assert run_planning._start_s(1.0, 500, False, False, costs) == 0.0
    assert run_planning._start_s(10.0, 500, True, False, costs) == pytest.approx(5.6)
    assert run_planning._start_s(4.0, 0, True, False, costs) == 0.0
