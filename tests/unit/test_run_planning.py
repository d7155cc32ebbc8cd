"""planning and ncu_costs: estimates from what was measured, and what a budget pays for."""

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from profzoo.config import configuration as config
from profzoo.errors import DataError
from profzoo.tables.ncu_coverage import KEYS
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.tools.ncu import launch_selection, multi_run, run_planning
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from tests import slow

COSTS = ncu_costs.load_costs()
START = 4.0


@pytest.fixture(scope="module")
def census(recording: Callable) -> pd.DataFrame:
    """Every launch of a step of MobileNetV2's training."""
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    names, _ = ncu_tables.read_raw(recording("ncu/launch.raw.demangled.csv"))
    return ncu_tables.tidy_launches(raw, units, names, None)[0]


def plan(census: pd.DataFrame, name: str = "roofline", **given: object) -> dict:
    """The plan of a set, of one launch of each configuration unless other are asked for, for a process that takes START
    without a launch."""
    options = config.normalise_config({"ncu": {"launches": "distinct"} | given})["ncu"]
    price = ncu_costs.estimate_cost(options["sets"][name], COSTS)
    return run_planning.plan_collection(options, name, census, START, price, COSTS)


def profiled(census: pd.DataFrame, planned: dict) -> pd.DataFrame:
    """The launches that ncu takes by the plan's --kernel-id."""
    _, _, _, names, at = planned["options"][planned["options"].index("--kernel-id") + 1].split(":")
    number = (census.groupby("mangled").cumcount() + 1).astype(str)
    return census[census["mangled"].str.fullmatch(names) & number.str.fullmatch(at)]


def test_everything_is_profiled_without_a_budget(census: pd.DataFrame) -> None:
    planned = plan(census)
    assert planned["launches"] == planned["configurations"] == planned["configurations_of_window"] == 186
    assert planned["share"] == 1 and planned["replay"] == "kernel" and planned["basis"] == "measured"
    assert planned["estimate_s"] == pytest.approx(
        START + 186 * COSTS["sets"]["roofline"]["seconds"] + (len(census) - 186) * COSTS["passed_over_s"], abs=1e-3
    )
    assert planned["options"] == [
        "--replay-mode",
        "kernel",
        *ncu.selection_options(config.normalise_config({})["ncu"], "roofline"),
    ]
    assert planned["error"] is None and planned["runs"] == 1
    assert run_planning.describe_plan(planned) == (
        "ncu roofline: 186 launches, 186 of 186 configurations, 100.0% of GPU time, 6 passes, kernel replay: about 39 s"
    )


def test_without_a_budget_the_first_of_each_configuration_is_profiled(census: pd.DataFrame) -> None:
    assert launch_selection.profiled_launches(census, plan(census)["options"]).equals(census.drop_duplicates(KEYS))
    some = launch_selection.profiled_launches(census, plan(census, kernel_name="cudnn")["options"])
    assert 0 < len(some) < 186 and some["mangled"].str.contains("cudnn").all()


def test_configurations_that_were_not_profiled_as_planned(census: pd.DataFrame) -> None:
    planned = launch_selection.profiled_launches(census, plan(census, budget="20s")["options"])
    assert not len(launch_selection.differing_configurations(planned, planned))
    # One launch that was profiled in another's place: neither is known.
    missed, other = planned.index[3], census.index.difference(planned.index)[-1]
    taken = census.loc[[*planned.index.drop(missed), other]]
    found = launch_selection.differing_configurations(taken, planned)
    assert set(found) == {tuple(census.loc[at, KEYS]) for at in (missed, other)}


def test_a_budget_that_suffices_changes_nothing(census: pd.DataFrame) -> None:
    assert plan(census, budget="10m") == plan(census) | {"budget": "10m"}


@pytest.mark.parametrize("budget", [6, "10s", "20s", "30s"])
def test_a_budget_is_kept_and_spent_on_what_takes_longest(census: pd.DataFrame, budget: str | int) -> None:
    planned = plan(census, budget=budget)
    limit = ncu.parse_budget(budget)
    assert planned["estimate_s"] <= limit and planned["configurations"] < 186
    # Each launch that is left out would have cost more than what is left.
    assert limit - planned["estimate_s"] < 8 * planned["launch_s"]
    taken = profiled(census, planned)
    assert len(taken) == planned["launches"]
    assert launch_selection.profiled_launches(census, planned["options"]).equals(taken)
    covered = taken[KEYS].drop_duplicates().merge(census, on=KEYS)
    assert len(taken[KEYS].drop_duplicates()) == planned["configurations"]
    assert covered[GPU_TIME].sum() / census[GPU_TIME].sum() == pytest.approx(planned["share"], abs=1e-6)
    even = planned["configurations"] / 186
    assert planned["share"] > even
    longest = census.groupby(KEYS)[GPU_TIME].sum().idxmax()
    assert (taken[KEYS].apply(tuple, axis=1) == longest).any()


def test_more_budget_covers_more(census: pd.DataFrame) -> None:
    shares = [plan(census, budget=limit)["share"] for limit in (6, 10, 15, 20, 25, 30, 40)]
    assert shares == sorted(shares) and shares[-1] == 1


def test_names_are_taken_literally(census: pd.DataFrame) -> None:
    odd = census.assign(mangled=census["mangled"] + ".part.0$")
    planned = plan(odd, budget=8)
    assert len(profiled(odd, planned)) == planned["launches"] > 0
    assert re.search(r"part\\\.0\\\$", planned["options"][-1])


def test_a_budget_for_nothing_is_refused(census: pd.DataFrame) -> None:
    with pytest.raises(DataError) as error:
        plan(census, "full", budget=5)
    assert str(error.value) == (
        "ncu.budget = 5 does not pay for one launch of set full: starting takes 4 s and a launch 1.72 s; give 7s or more"
    )


def test_launches_are_chosen_for_an_error(census: pd.DataFrame) -> None:
    planned = plan(census, launches="sampled")
    assert 186 < planned["launches"] <= 1.5 * 186 and planned["error"] <= 0.02 and planned["configurations"] == 186
    assert f"{planned['launches']} launches, 186 of 186 configurations, 100.0% of GPU time, totals within" in (
        run_planning.describe_plan(planned)
    )
    smaller, larger = (plan(census, launches="sampled", error=error) for error in ("0.5%", "50%"))
    assert smaller["launches"] > planned["launches"] and smaller["error"] < planned["error"]
    assert (larger["launches"], larger["runs"]) == (186, 1)
    assert larger["options"] == [
        "--replay-mode",
        "kernel",
        *ncu.selection_options(config.normalise_config({})["ncu"], "roofline"),
    ]


@pytest.mark.parametrize("error", slow.only(["0.5%", "2%", "5%"], "2%"))
def test_runs_profile_what_the_plan_says(census: pd.DataFrame, error: str) -> None:
    planned = plan(census, launches="sampled", error=error)
    runs = ncu.run_options(planned["options"])
    assert len(runs) == planned["runs"]
    taken = [launch_selection.profiled_launches(census, words) for words in runs]
    assert sum(map(len, taken)) == planned["launches"]
    assert len(pd.concat(taken)[KEYS].drop_duplicates()) == 186
    process = START + len(census) * COSTS["passed_over_s"]
    each = COSTS["sets"]["roofline"]["seconds"] - COSTS["passed_over_s"]
    assert planned["estimate_s"] == pytest.approx(len(runs) * process + planned["launches"] * each, abs=1e-2)


def test_several_runs_are_one_command(census: pd.DataFrame, tmp_path: Path) -> None:
    planned = plan(census, launches="sampled", error="1%")
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


def test_all_launches_in_one_run_where_that_takes_no_longer(census: pd.DataFrame) -> None:
    """Of a cheap set, starts of ncu take longer than launches that a sample leaves out."""
    few = census[census.groupby(KEYS, dropna=False).cumcount() < 2]
    few = few.sort_index().reset_index(drop=True).assign(id=lambda table: table.index)
    cheap = plan(few, "traffic", launches="sampled", error="0.5%")
    assert cheap["launches"] == len(few) and (cheap["runs"], cheap["error"]) == (1, 0)
    sample = cheap["instead_of"]
    assert sample["runs"] > 1 and sample["estimate_s"] >= cheap["estimate_s"]
    assert launch_selection.profiled_launches(few, cheap["options"]).equals(few)
    assert run_planning.describe_plan(cheap).endswith(
        f"about {cheap['estimate_s']:.0f} s, all launches in one run, as {sample['launches']} in {sample['runs']} "
        f"runs would take {sample['estimate_s']:.0f} s"
    )
    # A dear one is sampled, unless that takes as many, and so is one whose launches a budget does not all pay for.
    dear = plan(few, "full", launches="sampled")
    assert dear["launches"] < len(few) and "instead_of" not in dear
    limit = int(cheap["estimate_s"])
    assert plan(few, "traffic", launches="sampled", error="0.5%", budget=limit)["launches"] < len(few)


@pytest.mark.parametrize("error", slow.only(["0.3%", "0.5%", "1%", "2%"], "2%"))
@pytest.mark.parametrize("name", slow.first(["traffic", "roofline", "full"]))
def test_a_sample_saves_a_tenth_of_the_time(census: pd.DataFrame, name: str, error: str) -> None:
    planned, every = plan(census, name, launches="sampled", error=error), plan(census, name, launches="all")
    if "instead_of" in planned:
        assert planned["launches"] == len(census)
        assert planned["instead_of"]["estimate_s"] >= 0.9 * every["estimate_s"]
    else:
        assert planned["estimate_s"] < 0.9 * every["estimate_s"]


def test_all_launches_of_kernels_by_name(census: pd.DataFrame) -> None:
    some = plan(census, "traffic", launches="sampled", error="0.1%", kernel_name="cudnn")
    named = census[census["mangled"].str.contains("cudnn")]
    assert some["launches"] == len(named) and "instead_of" in some
    assert launch_selection.profiled_launches(census, some["options"]).equals(named)


@pytest.mark.slow
def test_a_budget_also_limits_what_is_added_for_an_error(census: pd.DataFrame) -> None:
    budgets = [plan(census, launches="sampled", error="0.5%", budget=limit) for limit in (20, 45, 60, 600)]
    assert all(one["estimate_s"] <= one["budget"] for one in budgets)
    launches = [one["launches"] for one in budgets]
    assert launches == sorted(launches) and budgets[0]["configurations"] < 186 <= budgets[1]["configurations"]


def test_kernels_by_name(census: pd.DataFrame) -> None:
    some = plan(census, kernel_name="cudnn")
    assert 0 < some["configurations"] < 186 and 0 < some["share"] < 1
    assert "regex:cudnn" in some["options"]
    with pytest.raises(DataError, match="matches none"):
        plan(census, kernel_name="no_such_kernel")


def test_launches_that_are_counted_off(census: pd.DataFrame) -> None:
    assert plan(census, launches="all")["launches"] == len(census)
    assert plan(census, launches=20)["options"] == ["--replay-mode", "kernel", "--launch-count", "20"]


def test_application_replay_where_it_is_clearly_cheaper(census: pd.DataFrame) -> None:
    assert plan(census, "full")["replay"] == "kernel"
    dear = ncu_costs.Cost(9, 2.0)
    options = config.normalise_config({"ncu": {"launches": "distinct"}})["ncu"]
    planned = run_planning.plan_collection(options, "roofline", census, START, dear, COSTS)
    assert planned["replay"] == "application"
    start = planned["start_s"]
    assert planned["estimate_s"] == pytest.approx(
        9 * (start + 186 * COSTS["application_pass_s"] + (len(census) - 186) * COSTS["passed_over_s"]), abs=1e-2
    )
    asked = config.normalise_config({"ncu": {"replay": "kernel"}})["ncu"]
    assert run_planning.plan_collection(asked, "roofline", census, START, dear, COSTS)["replay"] == "kernel"


def test_sets_are_found_by_what_they_collect() -> None:
    sets = config.normalise_config({})["ncu"]["sets"]
    assert ncu_costs.estimate_cost(sets["full"], COSTS) == ncu_costs.Cost(38, 1.72)
    assert ncu_costs.estimate_cost(sets["roofline"] | {"launches": "all"}, COSTS).basis == ncu_costs.MEASURED


def test_other_sets_cost_what_their_parts_do() -> None:
    parts = COSTS["sections"]
    two = ncu_costs.estimate_cost({"sections": ["SpeedOfLight", "Occupancy"]}, COSTS)
    assert two == ncu_costs.Cost(10, pytest.approx(parts["SpeedOfLight"]["seconds"]), ncu_costs.PARTS)
    one = ncu_costs.estimate_cost({"metrics": ["gpu__time_duration.sum", "dram__bytes_read.sum"]}, COSTS)
    assert one.passes == 1 and one.seconds < 0.1
    more = ncu_costs.estimate_cost({"sections": "regex:^SpeedOfLight$", "metrics": ["sm__inst_executed.sum"]}, COSTS)
    assert more.passes == 12 and two.seconds < more.seconds < 0.5
    full = COSTS["ncu_sets"]["full"]
    assert ncu_costs.estimate_cost({"set": "full", "sections": ["PmSampling"]}, COSTS).seconds == full["seconds"]
    assert (
        ncu_costs.estimate_cost({"set": "full", "sections": ["PmSampling_WarpStates"]}, COSTS).seconds > full["seconds"]
    )
    most = ncu_costs.estimate_cost({"sections": "regex:^(?!C2C|Nvlink$|PmSampling_)"}, COSTS)
    assert (most.passes, most.seconds) == (full["passes"], full["seconds"])
    # Sections of other versions of ncu, which nobody measured, are no reason to fail.
    assert ncu_costs.estimate_cost({"sections": ["NewSection"]}, COSTS).passes == 1


def test_the_measured_costs_are_of_what_there_is() -> None:
    shipped = config.normalise_config({})["ncu"]["sets"]
    assert set(COSTS["sets"]) <= set(shipped)
    named = {section for chosen in shipped.values() for section in chosen.get("sections", [])}
    listed = {section for of in COSTS["ncu_sets"].values() if isinstance(of, list) for section in of}
    assert named | listed <= set(COSTS["sections"])
