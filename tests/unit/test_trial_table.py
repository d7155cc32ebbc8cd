"""Trials, each number worked out by hand: gains of rounds, what is a hit, differences of outputs, words."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo import run
from profzoo.cell import settings
from profzoo.compare import numerics
from profzoo.config import configuration
from profzoo.errors import DataError
from profzoo.experiments import trial_runner
from profzoo.report import savings
from profzoo.statistics.speedup import FASTER, UNDECIDED
from profzoo.trials import cli, trial_table
from profzoo.trials.trial_table import HIT, MISS, SLOWED, best_row

CELL = {"model": "lstm", "phase": "train"}


@pytest.mark.parametrize(
    ("row", "right"),
    [
        # A gain of 1.5 was 1.25: a fifth more is near, more than that is not.
        ({"expected": 1.5, "gain": 1.25}, HIT),
        ({"expected": 1.51, "gain": 1.25}, MISS),
        ({"expected": 1.0, "gain": 1.25}, HIT),
        ({"expected": 0.99, "gain": 1.25}, MISS),
        # Three rounds have an interval that tells, two have none; its ends are within.
        ({"expected": 3.0, "gain": 1.0, "processes": 3}, HIT),
        ({"expected": 3.01, "gain": 1.0, "processes": 3}, MISS),
        ({"expected": 0.5, "gain": 1.0, "processes": 3}, HIT),
        ({"expected": 0.49, "gain": 1.0, "processes": 3}, MISS),
        ({"expected": 3.0, "gain": 1.0, "processes": 2}, MISS),
        # Slower by two in a hundred is worth a word, and only of what was advised.
        ({"expected": 1.0, "gain": 0.979, "advised": True}, SLOWED),
        ({"expected": 1.0, "gain": 0.98, "advised": True}, HIT),
        ({"expected": 1.0, "gain": 0.979}, HIT),
        ({"expected": 1.0, "gain": 1.0, "numerics": "different"}, ""),
        ({"expected": 0.0, "gain": 1.0}, ""),
        ({"expected": 1.0, "gain": 0.0}, ""),
        ({"expected": np.nan, "gain": 1.0}, ""),
        ({"expected": 1.0, "gain": np.nan}, ""),
    ],
)
def test_what_is_a_hit(row: dict[str, Any], right: str) -> None:
    known = {"advised": False, "processes": 2, "gain_low": 0.5, "gain_high": 3.0, "numerics": "same"}
    assert trial_table.judge_outcome(known | row) == right


@pytest.mark.parametrize(
    ("one", "other", "right"),
    [
        # Off by 1, 2 and 0, of 5 at most.
        ([1.0, -5.0, 2.0], [0.0, -3.0, 2.0], 0.4),
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.0], np.nan),
        (None, [1.0], np.nan),
        ([1.0], None, np.nan),
        ([0.0, 0.0], [1.0, 1.0], np.nan),
        ([0.0, 4.0], [1.0, 4.0], 0.25),
    ],
)
def test_how_far_outputs_are_apart(one: Any, other: Any, right: float) -> None:
    assert trial_table._output_distance(one, other) == pytest.approx(right, nan_ok=True)


def tried(*processes: tuple[int, str, int, float], **more: Any) -> pd.DataFrame:
    """The table of processes of round, side, batch and ns a step, of 10 steps each that all take that long."""
    own = [{"round": number, "side": side, "batch": batch} for number, side, batch, _ in processes]
    steps = pd.DataFrame([{"process": place, "wall_ns": ns, "gpu_ns": ns}
                          for place, (*_, ns) in enumerate(processes) for _ in range(10)])  # fmt: skip
    names = [side for side in dict.fromkeys(side for _, side, _, _ in processes) if side]
    facts = {
        "processes": [one | more.get("says", {}).get(place, {}) for place, one in enumerate(own)],
        "chosen": "", "failed": {}, "tried": names, "ended": "all",
        "trials": {"candidates": {name: [f"{name}=1"] for name in names}, "refused": {}},
    }  # fmt: skip
    return trial_table.tabulate_trials([(CELL, steps, facts | more.get("facts", {}))], more.get("expected", {}), 0.02)


def test_gains_of_rounds_by_pairs() -> None:
    """Of one round 12 ms of 4 samples against 16 of 8, which are 8 of 4: 1.5. The second of the sides gains 2."""
    table = tried((0, "", 4, 12.0), (0, "wide", 8, 16.0), (0, "fast", 4, 6.0))
    assert table[["settings", "gain", "base_ns", "ns", "processes", "verdict"]].to_numpy().tolist() == [
        ["fast", 2.0, 12.0, 6.0, 1, UNDECIDED], ["wide", 1.5, 12.0, 16.0, 1, UNDECIDED],
    ]  # fmt: skip
    assert table[["gain_low", "gain_high"]].isna().all(axis=None) and not table["chosen"].any()


def test_clocks_that_differ_from_those_of_the_cell_as_it_is_are_told() -> None:
    fast, slow = (
        {"clocks": [{"sm_clock_hz": clock, "throttle_reasons": 4}]} for clock in (1_980_000_000, 1_485_000_000)
    )
    ran = ((0, "", 4, 12.0), (0, "a", 4, 16.0), (0, "b", 4, 8.0))
    table = tried(*ran, says={0: fast, 1: slow, 2: fast})
    told = "SM clock 1,980 MHz (power cap in 1 of 1 readings) -> 1,485 MHz (power cap in 1 of 1 readings)"
    assert table.set_index("settings")["clocks"].to_dict() == {"a": told, "b": ""}
    slower, faster = (next(line for line in cli.format_trials(table) if line.startswith(f"  {name} ")) for name in "ab")
    assert slower.endswith(told) and "SM clock" not in faster
    assert "clocks" not in tried(*ran, says={0: fast, 2: fast}) and "clocks" not in tried(*ran)


def test_only_rounds_with_the_cell_as_it_is_make_pairs() -> None:
    """10 and 10 ms against 5 and 5: what ran in a third round alone counts among its times, not among its gains."""
    table = tried((0, "", 4, 10.0), (0, "a", 4, 5.0), (1, "a", 4, 5.0), (1, "", 4, 10.0), (2, "a", 4, 80.0),
                  facts={"chosen": "a"})  # fmt: skip
    (row,) = table.to_dict("records")
    assert (row["gain"], row["base_ns"], row["ns"], row["processes"]) == pytest.approx((2, 10, 5, 3))
    assert row["chosen"] and row["gain_low"] <= 2 <= row["gain_high"]
    # With none of its rounds there is no gain.
    (row,) = tried((0, "", 4, 10.0), (1, "a", 4, 5.0)).to_dict("records")
    assert np.isnan(row["gain"]) and np.isnan(row["base_ns"]) and row["ns"] == 5 and row["verdict"] == UNDECIDED


def test_times_are_medians_of_steps_and_of_rounds() -> None:
    """Steps of 1, 2 and 9 ms have a median of 2, and rounds of 2, 4 and 30 one of 4; the cell as it is takes 8."""
    sides = [(number, side) for number in range(3) for side in ("", "a")]
    times = {"": [[8.0, 8, 8]] * 3, "a": [[1.0, 9, 2], [4.0, 4, 4], [30.0, 30, 30]]}
    steps = pd.DataFrame([{"process": place, "wall_ns": ns, "gpu_ns": ns} for place, (number, side) in enumerate(sides)
                          for ns in times[side][number] * 3])  # fmt: skip
    facts = {"processes": [{"round": number, "side": side, "batch": 4} for number, side in sides], "chosen": "",
             "failed": {}, "tried": ["a"], "ended": "all", "trials": {"candidates": {}, "refused": {}}}  # fmt: skip
    (row,) = trial_table.tabulate_trials([(CELL, steps, facts)], {}, 0.02).to_dict("records")
    assert (row["base_ns"], row["ns"], row["processes"]) == (8, 4, 3)


def test_losses_and_outputs_are_held_against_the_cell_as_it_is() -> None:
    says = {0: {"loss": 0.5, "outputs": [2.0]}, 1: {"loss": 0.6, "outputs": [1.0]}, 2: {"loss": 9.0}}
    table = tried((0, "", 4, 10.0), (0, "a", 4, 5.0), (0, "b", 4, 6.0), says=says).set_index("settings")
    assert table["loss_difference"].tolist() == pytest.approx([0.2, 17])
    assert table["output_difference"].tolist() == pytest.approx([0.5, np.nan], nan_ok=True)


def test_what_was_left_out_says_why() -> None:
    """Of five candidates one ran, one failed at once, one is refused, one was next and one was never to be tried."""
    trials = {"candidates": {name: [] for name in "abde"}, "refused": {"c": "no such optimizer"}}
    facts = {"trials": trials, "failed": {"b": "no memory"}, "tried": ["a", "b", "d"], "ended": "budget"}
    table = tried((0, "", 4, 10.0), (0, "a", 4, 5.0), facts=facts)
    assert table[["settings", "verdict"]].to_numpy().tolist() == [
        ["a", UNDECIDED], ["b", "failed"], ["c", "refused"], ["d", "not tried"], ["e", "not tried"],
    ]  # fmt: skip
    why = table["why"].tolist()
    assert why[0] == "" and why[1:3] == ["no memory", "no such optimizer"]
    assert "trials.budget" in why[3] and "trials.max_settings" in why[4]
    assert table["processes"].tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("words", "failed", "why"),
    [
        # One setting fails by itself, and the plan with it because of that.
        ({"plan": ["a=1", "b=1"], "a": ["a=1"], "b=1": ["b=1"]}, {"plan": "off (m.py:3)", "b=1": "odd (m.py:2)"},
         {"b=1": "odd (m.py:2)", "plan": "because of `b=1`: odd (m.py:2)"}),
        # Each works without the other.
        ({"plan": ["a=1", "b=1"], "a": ["a=1"], "b": ["b=1"]}, {"plan": "odd (m.py:2)"},
         {"plan": "only together: odd (m.py:2)"}),
        # It is not known of one.
        ({"plan": ["a=1", "b=1"], "a": ["a=1"]}, {"plan": "odd"}, {"plan": "odd"}),
        # Two reasons, and a set that holds one of them.
        ({"plan": ["a=1", "b=1", "c=1"], "a": ["a=1"], "b": ["b=1"], "a+c": ["a=1", "c=1"]},
         {"plan": "odd", "b": "no b", "a": "no a", "a+c": "odd"},
         {"plan": "because of `b=1`: no b; because of `a=1`: no a", "b": "no b", "a": "no a",
          "a+c": "because of `a=1`: no a"}),
    ],
)  # fmt: skip
def test_what_fails_of_several_settings_is_named(
    words: dict[str, list[str]], failed: dict[str, str], why: dict[str, str]
) -> None:
    sides = [(0, side, 4, 10.0) for side in ("", *words) if side not in failed]
    trials = {"candidates": {"plan": words["plan"]}, "refused": {}}
    facts = {"words": words, "failed": failed, "trials": trials, "tried": [*words]}
    table = tried(*sides, facts=facts).set_index("settings")
    rows = table[table["verdict"] == "failed"]
    assert rows["why"].to_dict() == why and rows.loc["plan", "words"] == " ".join(words["plan"])
    said = cli.format_trials(table.reset_index())
    assert said[0] == "lstm train: no setting is clearly faster" and f"  {'plan':<24} failed: {why['plan']}" in said
    (cell,) = savings.make_first_section([], {"trials": table.reset_index()})["trials"]
    assert why["plan"] in [row["why"] for row in cell["rows"]]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What processes of a small network leave: as it is, in bf16, and with layers left out."""
    folder, found = tmp_path_factory.mktemp("processes"), {}
    for name in ("", "precision=bf16", "changed=skipped_layers"):
        words = ["module=tests.planted_numerics", "warmup=1", "window=2", "threads=1", "device=cpu", "dropout=0.0"]
        files = ["--numerics", "--facts", str(folder / "facts.json")]
        assert run.main(["planted", "inference", *words, *filter(None, [name]), *files]) == 0
        found[name] = json.loads((folder / "facts.json").read_text())
    return found


# A joined variant of a panel, of which no part is a candidate, and a variant.
JOINED = {"workers+half": ["precision=bf16"], "skipping": ["changed=skipped_layers"]}


def recorded(processes: dict[str, Any], *ran: str) -> pd.DataFrame:
    """The table of trials of JOINED, where processes of the cell as it is and of JOINED ran with these settings."""
    says = {place: processes[name] | {"batch": 4} for place, name in enumerate(ran)}
    facts = {"cell": processes[""]["ran_with"], "trials": {"candidates": JOINED, "refused": {}}}
    sides = [(0, side, 4, 10.0) for side in ("", *JOINED)][: len(ran)]
    return tried(*sides, says=says, facts=facts).set_index("settings")


def test_a_joined_variant_is_held_to_the_precision_that_it_ran_with(processes: dict[str, Any]) -> None:
    """Whatever its name. What the candidate lacks is told of the candidate, and not of the cell as it is."""
    table = recorded(processes, "", "precision=bf16", "changed=skipped_layers")
    half, skipping = table.loc["workers+half"], table.loc["skipping"]
    assert (half["words"], half["numerics"]) == ("precision=bf16", numerics.WITHIN)
    assert half["numerics_difference"] > 1e-4 and half["why"] == ""
    assert skipping["numerics"] == numerics.DIFFERENT
    before, after = (processes[name]["double_precision"]["operations"] / 4 for name in ("", "changed=skipped_layers"))
    assert f"operations per sample {before:.4g} -> {after:.4g}" in skipping["work"] and before > 2 * after


@pytest.mark.parametrize(
    ("ran", "side", "wrong"),
    [
        # A candidate without its settings, with those of another one, and exchanged with the cell as it is.
        (["", ""], "with `workers+half`", "precision=fp32 instead of bf16"),
        (["", "changed=skipped_layers"], "with `workers+half`",
         "changed=skipped_layers instead of none, precision=fp32 instead of bf16"),
        (["precision=bf16", ""], "as it is", "precision=bf16 instead of fp32"),
    ],
)  # fmt: skip
def test_processes_that_ran_with_other_settings_are_no_trials(
    processes: dict[str, Any], ran: list[str], side: str, wrong: str
) -> None:
    with pytest.raises(DataError) as error:
        recorded(processes, *ran)
    assert str(error.value).startswith(
        f"lstm/train.trials.csv: a process of the cell {side} ran with {wrong}: delete it"
    )
    assert "\n" not in str(error.value)


def test_later_processes_may_time_fewer_steps(processes: dict[str, Any]) -> None:
    shorter = processes[""]["ran_with"] | {"window": 8, "steps": 9}
    recorded(processes | {"": processes[""] | {"ran_with": shorter}}, "", "precision=bf16")
    # A setting that its default switches off is not in what ran.
    ran_with = {**processes[""]["ran_with"], "graph": True}
    asked = ["graph=false" if word == "graph=true" else word for word in settings.setting_words(ran_with)]
    assert "graph=false" in asked and settings.describe_other_settings(asked, processes[""]["ran_with"]) == ""


def test_expectations_are_found_by_name_or_words_in_any_order() -> None:
    one = {"gain": 1.5, "low": 1.2, "high": None, "verdict": "v", "advised": True}
    known = {
        "lstm train": {"x=1 y=2": one | {"words": ["x=1", "y=2"]}, "both": one | {"gain": 3.0, "words": ["b=1", "a=1"]}}
    }
    trials = {"candidates": {"a": ["a=1"], "b": ["b=1"], "c": ["y=2", "x=1"]}, "refused": {}}
    sides = [(0, "", 4, 10.0), (0, "a+b", 4, 5.0), (0, "c", 4, 6.0), (0, "a", 4, 8.0)]
    words = {"words": {"a+b": ["a=1", "b=1"]}}
    table = tried(*sides, facts={"trials": trials} | words, expected=known).set_index("settings")
    assert table["expected"].to_dict() == pytest.approx({"a+b": 3.0, "c": 1.5, "a": np.nan, "b": np.nan}, nan_ok=True)
    assert table["advised"].tolist() == [True, True, False, False]
    assert table["advised_by"].tolist() == ["v", "v", "", ""]
    assert table.loc["c", "expected_low"] == 1.2 and np.isnan(table.loc["c", "expected_high"])
    assert table.loc["a+b", "words"] == "a=1 b=1"


def rows(*given: tuple[str, float, str, str, bool]) -> pd.DataFrame:
    table = pd.DataFrame(given, columns=["settings", "gain", "verdict", "why", "chosen"])
    return table.assign(**CELL, words=table["settings"], gain_low=table["gain"] - 0.1, gain_high=table["gain"] + 0.1,
                        base_ns=2e6, ns=1e6, processes=3, expected=1.5, outcome="",
                        **numerics.UNKNOWN)  # fmt: skip


def test_the_best_is_what_was_chosen_then_what_is_fastest() -> None:
    table = rows(("a", 2.0, FASTER, "", False), ("b", 1.5, FASTER, "", True), ("c", 3.0, UNDECIDED, "", False),
                 ("d", 4.0, FASTER, "failed", False))  # fmt: skip
    assert (best_row(table) or {})["settings"] == "b"
    assert (best_row(table.assign(chosen=False)) or {})["settings"] == "a"
    assert best_row(table[2:]) is None
    assert (best_row(table.assign(why=None)) or {})["settings"] == "b"


def test_what_a_terminal_says_of_trials() -> None:
    table = rows(("a", 2.0, FASTER, "", True), ("b", 1.25, UNDECIDED, "", False), ("c", np.nan, "failed", "no", False),
                 ("d", np.nan, UNDECIDED, "", False), ("e", np.nan, "not tried", "", False))  # fmt: skip
    table["outcome"] = ["miss", "", "", "", ""]
    table["processes"] = [3, 3, 0, 1, 0]
    table.loc[1, ["gain_low", "gain_high"]] = np.nan
    table.loc[1, "why"] = "failed in a later round: no"
    assert cli.format_trials(table) == [
        "lstm train runs 2.00 times as fast (1.90 to 2.10) with `a`: 2 ms -> 1 ms per step, measured",
        f"  {'a':<24} 2.00 times as fast [1.90, 2.10]  faster, expected 1.50: not confirmed",
        f"  {'b':<24} 1.25 times as fast  undecided, failed in a later round: no",
        f"  {'c':<24} failed: no",
        f"  {'d':<24} undecided: no gain, because the unchanged cell failed in every round with it",
        f"  {'e':<24} not tried",
        "expected gains (1): 1 not confirmed",
    ]
    assert cli.format_trials(table[1:])[0] == "lstm train: no setting is clearly faster"
    assert cli.format_trials(table[1:])[-1].endswith("not tried")


def planned(**given: Any) -> dict[str, Any]:
    return {**CELL, "rank": 1, "verdicts": "v", "settings": "precision=bf16", "gain": 1.5, "gain_low": 1.2,
            "gain_high": 1.9, "advised": True, "not_possible": "", **given}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "right"),
    [
        ([], (1.5, 1.2, 1.9, True)),
        # The first of equal settings counts.
        ([{"rank": 2, "gain": 3.0}], (1.5, 1.2, 1.9, True)),
        ([{"rank": 0, "gain": 3.0, "advised": False}], (3.0, 1.2, 1.9, False)),
        # None of these is expected to gain anything.
        ([{"rank": 0, "gain": 0.0}, {"rank": 0, "gain": np.nan}], (1.5, 1.2, 1.9, True)),
    ],
)  # fmt: skip
def test_what_plans_expect(more: list[dict[str, Any]], right: tuple) -> None:
    config = configuration.normalise_config({"models": "lstm"})
    table = pd.DataFrame([planned(), *(planned(**one) for one in more)])
    found = trial_table.expected_gains(table, config, {}, {})
    assert list(found) == ["lstm train"] and list(found["lstm train"]) == ["bf16"]
    own = found["lstm train"]["bf16"]
    assert (own["gain"], own["low"], own["high"], own["advised"]) == right
    alone = trial_table.expected_gains(table.iloc[:1].assign(gain_low=0.0, gain_high=np.nan), config, {}, {})
    assert (alone["lstm train"]["bf16"]["low"], alone["lstm train"]["bf16"]["high"]) == (None, None)


def test_what_failed_in_a_trial_comes_first_in_no_later_one() -> None:
    """Whatever a table says that was made elsewhere; neither alone nor with others."""
    config = configuration.normalise_config({"models": "lstm"})
    table = pd.DataFrame(
        [planned(settings="precision=bf16 workers=2", gain=9.0), planned(settings="workers=2", rank=2)]
    )
    found = trial_table.expected_gains(table, config, {}, {"lstm train": {"precision=bf16": "odd"}})["lstm train"]
    why = "it failed in a trial: odd"
    assert [(name, one["gain"], one.get("not_possible"), one.get("failed")) for name, one in found.items()] == [
        ("precision=bf16 workers=2", None, why, None), ("workers=2", 1.5, None, None), ("bf16", None, why, "odd")
    ]  # fmt: skip
    panel = {"bf16": ["precision=bf16"], "graph": ["graph=true"]}
    candidates = trial_runner.add_plans(panel, found)
    assert trial_runner.order_settings(candidates, found) == ["workers=2", "graph", "bf16"]


@pytest.mark.parametrize(
    ("words", "batch", "name"),
    [
        ("batch=8", [4], "double_batch"),
        ("batch=8", [], "batch=8"),
        ("batch=8", [8], "batch=8"),
        ("batch=6", [4], "batch=6"),
        ("precision=bf16", [], "bf16"),
    ],
)
def test_twice_the_batch_has_a_name_where_the_batch_is_known(words: str, batch: list[int], name: str) -> None:
    config = configuration.normalise_config({"models": "lstm", "trials": {"panel": ["bf16", "double_batch"]}})
    assert trial_table.name_candidate(words, config, *batch) == name


def test_what_a_side_computed_goes_by_the_settings_that_it_ran_with() -> None:
    """A setting changes the cell's precision, and the unchanged cell has its own."""
    first = {"losses": [1.0], "outputs": [], "gradients": []}
    processes = [{"side": "", "first_steps": first, "steps": 3}, {"side": "half", "first_steps": first, "steps": 2}]
    facts: Any = {"cell": {**CELL, "precision": "tf32"}, "batch": 4,
                  "trials": {"candidates": {"half": ["precision=bf16"]}}}  # fmt: skip
    one, other = (trial_table._numeric_side(processes, side, facts) for side in ("", "half"))
    assert (one.precision, one.steps, one.batch) == ("tf32", 3, 4)
    assert (other.precision, other.steps, other.batch) == ("bf16", 2, 4)
