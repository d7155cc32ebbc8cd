"""Trials from files: which settings are tried, what was expected, the table, and what a terminal shows."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats  # type: ignore[import-untyped]

from profzoo.cell import registry
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.experiments import interleaved_runs
from profzoo.io import column_types
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.plans import table_columns
from profzoo.plans.infeasible_settings import IN_FORCE
from profzoo.report import savings_section
from profzoo.statistics import process_repeats, sequential
from profzoo.trials import advice_scoring, candidate_settings, cli, expected_gains, forecast_skill, trial_table
from profzoo.verdicts import advice_scores
from tests.benchmarks import verdict_score

STEPS = 10
DATA = Path(__file__).parents[1] / "data/trials"
CONFIG = configuration.normalise_config({"models": "lstm"})


def test_a_cell_has_the_panel_and_what_is_advised_to_try() -> None:
    config = configuration.normalise_config(
        {"models": "lstm", "trials": {"panel": ["bf16", "double_batch", "workers"]}}
    )
    found, refused = candidate_settings.candidate_words("lstm", "train", config)
    assert found["bf16"] == ["precision=bf16"] and not refused
    batch = next(word for word in candidate_settings.settings.setting_words(candidate_settings.settings.resolve_cell("lstm", "train", "time", config))
                 if word.startswith("batch="))  # fmt: skip
    assert f"batch={2 * int(batch.removeprefix('batch='))}" in found["double_batch"]
    # Advice has the name of the variant that follows it, else its own words.
    assert sorted(found["workers"]) == ["pin_memory=true", "workers=4"] and "precision=tf32" in found
    assert candidate_settings.name_candidate("pin_memory=true workers=4", config) == "workers"


def test_what_a_cell_has_is_not_tried_again() -> None:
    found, _ = candidate_settings.candidate_words("lstm@bf16", "train", CONFIG)
    assert "bf16" not in found and found["tf32"] == ["precision=tf32"]


def test_a_panel_may_name_joined_variants() -> None:
    config = configuration.normalise_config({"models": "lstm", "trials": {"panel": ["graph+bf16", "graph"]}})
    found, _ = candidate_settings.candidate_words("lstm", "train", config)
    assert list(found)[:2] == ["graph+bf16", "graph"] and set(found["graph+bf16"]) == {"graph=true", "precision=bf16"}
    assert candidate_settings.name_candidate("precision=bf16 graph=true", config) == "graph+bf16"
    own, _ = candidate_settings.candidate_words("lstm@fused", "train", config)
    assert own["graph+bf16"] == found["graph+bf16"]
    config["trials"]["panel"] = ["graph+bf61"]
    with pytest.raises(ConfigError, match=r"trials\.panel: 'bf61' is no variant: .*bf16"):
        candidate_settings.candidate_words("lstm", "train", config)


def test_what_was_put_together_is_held_against_what_was_expected_of_it(tmp_path: Path) -> None:
    path = tried(tmp_path / "lstm", {"": 10.0, "bf16": 5.0, "bf16+double": 4.0})
    cell = {"model": "lstm", "phase": "train"}
    for name in ("double+bf16", "batch=8 precision=bf16"):
        one = {"gain": 4.9, "low": 4.0, "high": 6.0, "verdict": "v", "advised": False}
        known = {"lstm train": {"double": {**one, "gain": 1.0}, name: one}}
        table = trial_table.tabulate_trials([(cell, reading.read(path, trial_table.REPEATED), json.loads(Path(f"{path}.json").read_text()))],
                               known, 0.02).set_index("settings")  # fmt: skip
        assert table.loc["bf16+double", "expected"] == 4.9 and np.isnan(table.loc["bf16", "expected"])


def test_a_panel_of_what_is_no_variant_is_refused() -> None:
    config = configuration.normalise_config({"models": "lstm", "trials": {"panel": ["bf61"]}})
    with pytest.raises(ConfigError, match=r"trials\.panel: 'bf61' is no variant: .*bf16"):
        candidate_settings.candidate_words("lstm", "train", config)


def test_expected_gains_are_those_of_plans(tmp_path: Path) -> None:
    row = {**dict.fromkeys(table_columns.COLUMNS, ""), **dict.fromkeys(table_columns.NUMBERS, np.nan), "model": "lstm",
           "phase": "train", "rank": 1, "gain": 1.5, "settings": "precision=bf16", "verdicts": "memory-bound", "gain_low": 1.2,
           "advised": True}  # fmt: skip
    others = [{"gain": 0.9, "settings": "graph=true", "rank": 3, "advised": False},
              {"gain": 1.4, "settings": "graph=true channels_last=true", "rank": 2, "advised": False},
              {"gain": np.nan, "gain_low": np.nan, "settings": "compile=true", "rank": 4, "not_possible": "it fails",
               "verdicts": "", "advised": False},
              {"gain": np.nan, "settings": "pin_memory=true", "rank": 5, "not_possible": IN_FORCE}]  # fmt: skip
    write_csv(pd.DataFrame([row, *({**row, **other} for other in others)]), tmp_path / "v.csv")
    expected_gains.main(str(tmp_path / "v.csv"), CONFIG, {"lstm train": 4}, str(tmp_path / "e.json"))
    known = {"low": 1.2, "high": None, "verdict": "memory-bound"}
    bf16 = {**known, "gain": 1.5, "advised": True, "rank": 1, "words": ["precision=bf16"]}
    graph = {**known, "gain": 0.9, "advised": False, "rank": 3, "words": ["graph=true"]}
    both = {**known, "gain": 1.4, "advised": False, "rank": 2, "words": ["graph=true", "channels_last=true"]}
    found = json.loads((tmp_path / "e.json").read_text())
    none = {"gain": None, "low": None, "high": None, "verdict": "", "advised": False, "rank": 4, "words": ["compile=true"],
            "not_possible": "it fails"}  # fmt: skip
    # Without a name in the panel, plans are named by their words.
    own = {"bf16": bf16, "graph=true channels_last=true": both, "graph": graph, "compile": none}
    assert found == {"cells": {"lstm train": own}}


def tried(folder: Path, speeds: dict[str, float], batches: dict[str, int] | None = None, **more: Any) -> Path:
    """Three rounds of these sides, with so many ms a step, as harness/trying leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    chance, order, facts = np.random.default_rng(3), [], []
    for number in range(3):
        for side, ms in speeds.items():
            times = np.round(1e6 * ms * np.exp(chance.normal(0, 0.002) + chance.normal(0, 0.01, STEPS))).astype(int)
            path = folder / f"{len(order)}.part"
            lines = [f"{step},{ns},{ns},4,1" for step, ns in enumerate(times)]
            path.write_text("\n".join(["step,wall_ns,gpu_ns,items,peak_memory_bytes", *lines]) + "\n")
            order.append((side, path))
            batch = (batches or {}).get(side, 4)
            facts.append({"step_ns": float(times.mean()), "batch": batch, "round": number, "items": 40,
                          "loss": 0.5 if side != "bf16" else 0.505,
                          "outputs": [2.0, -4.0] if side != "bf16" else [2.1, -4.2]})  # fmt: skip
    path = folder / "train.trials.csv"
    found = interleaved_runs.summarize_processes(
        [side for side, _ in order], facts, interleaved_runs.join_steps(order, path)
    )
    known = {"bf16": ["precision=bf16"], "graph": ["graph=true"], "double": ["batch=8"], "slow": ["compile=true"]}
    trials = {"candidates": known, "refused": {"fused": "optimizer: this model has none"}}
    outcome = {"chosen": "bf16", "failed": {}, "tried": [*known], "ended": "all", "trials": trials}
    Path(f"{path}.json").write_text(json.dumps(found | outcome | more))
    return path


def test_trials_become_a_table_of_gains(tmp_path: Path) -> None:
    speeds = {"": 10.0, "bf16": 5.0, "slow": 12.5, "double": 15.0}
    path = tried(tmp_path / "lstm", speeds, {"double": 8}, failed={"graph": "it cannot be captured"})
    gains = {"bf16": 2.3, "slow": 1.5, "double": 3.0}
    expected = {name: {"gain": gain, "low": gain / 2, "high": gain * 2, "verdict": f"because of {name}", "advised": True}
                for name, gain in gains.items()}  # fmt: skip
    (tmp_path / "e.json").write_text(json.dumps({"cells": {"lstm train": expected}}))
    trial_table.main([str(path)], str(tmp_path / "e.json"), 0.02, str(tmp_path / "trials.csv"))
    table = reading.read(tmp_path / "trials.csv", trial_table.TRIALS_TABLE).set_index("settings")
    assert table.index.tolist() == ["bf16", "double", "slow", "graph", "fused"]
    assert table["gain"].iloc[:3].tolist() == pytest.approx([2, 4 / 3, 0.8], rel=0.01)
    assert table["verdict"].tolist() == ["faster", "faster", "slower", "failed", "refused"]
    assert table["outcome"].tolist() == ["hit", "miss", "slowed down", "", ""]
    one = table.loc["bf16"]
    assert one["gain_low"] < 2 < one["gain_high"] and one["processes"] == 3 and one["chosen"] and one["expected"] == 2.3
    # Of a larger batch there may be other outputs.
    assert one["output_difference"] == pytest.approx(0.05) and table.loc["double", "output_difference"] == 0
    assert one["loss_difference"] == pytest.approx(0.01) and one["words"] == "precision=bf16"
    assert table["advised_by"].tolist()[:2] == ["because of bf16", "because of double"]
    assert table.loc["graph", "why"] == "it cannot be captured"
    assert (one["expected_low"], one["expected_high"]) == (1.15, 4.6) and np.isnan(table.loc["graph", "expected_low"])
    said = cli.format_trials(reading.read(tmp_path / "trials.csv", trial_table.TRIALS_TABLE))
    assert said[0].startswith("lstm train runs 2.0") and "with `precision=bf16`: 10 ms -> 5 ms per step" in said[0]
    assert said[-1] == "expected gains (3): 1 confirmed, 1 not confirmed, 1 slower instead"
    # What nobody advised has not misled anybody.
    expected["slow"] |= {"advised": False, "gain": 0.85}
    known = reading.read(path, trial_table.REPEATED), json.loads(Path(f"{path}.json").read_text())
    found = trial_table.tabulate_trials([({"model": "lstm", "phase": "train"}, *known)], {"lstm train": expected}, 0.02)
    slow = found.set_index("settings").loc["slow"]
    assert (slow["outcome"], slow["advised"], slow["advised_by"]) == ("hit", False, "because of slow")


def test_trials_until_decided_are_judged_one_by_one(tmp_path: Path) -> None:
    known = {"bf16": ["precision=bf16"], "graph": ["graph=true"], "double": ["batch=8"], "slow": ["compile=true"]}
    trials = {"candidates": known, "refused": {}, "repeats": None}
    path = tried(tmp_path / "lstm", {"": 10.0, "bf16": 5.0, "slow": 12.5, "graph": 9.9}, trials=trials, round_s=4.0)
    trial_table.main([str(path)], None, 0.02, str(tmp_path / "trials.csv"))
    table = reading.read(tmp_path / "trials.csv", trial_table.TRIALS_TABLE).set_index("settings")
    steps = reading.read(path, trial_table.REPEATED)
    medians = dict(enumerate(np.median(times) for times in process_repeats.processes(steps)))
    sides = ["", "bf16", "slow", "graph"]
    for place, side in enumerate(sides[1:], 1):
        between = [np.log(medians[4 * number + place] / medians[4 * number]) for number in range(3)]
        said, row = sequential.decide(between, 0.02), table.loc[side]
        assert said.found and row["verdict"] == said.outcome
        assert row["gain_low"] == pytest.approx(1 / said.found.high)
        lacks = f"about {said.missing} more rounds ({said.missing * 4} s) would decide: raise trials.budget"
        lacks = lacks if said.missing else ""
        assert row["why"] == lacks
    assert table.loc["bf16", "verdict"] == "faster" and table.loc["slow", "verdict"] == "slower"
    assert table.loc["graph", "verdict"] == "undecided" and table.loc["graph", "why"].endswith("raise trials.budget")


def test_what_no_number_of_rounds_decides_is_said() -> None:
    before, after = [1.0] * 4, [1.4, 0.7, 1.4, 0.7]
    _, said = trial_table._decide(before, after, 0.02, 4.0)
    assert said == {
        "verdict": "undecided",
        "why": "128 rounds would not decide: stop other programs, or time more steps",
    }


def test_settings_together_and_what_the_budget_left_out(tmp_path: Path) -> None:
    path = tried(tmp_path / "lstm", {"": 10.0, "bf16": 5.0, "bf16+double": 4.0}, chosen="bf16+double", ended="budget")
    trial_table.main([str(path)], None, 0.02, str(tmp_path / "trials.csv"))
    table = reading.read(tmp_path / "trials.csv", trial_table.TRIALS_TABLE).set_index("settings")
    assert table.loc["bf16+double", "words"] == "precision=bf16 batch=8" and table.loc["bf16+double", "chosen"]
    assert set(table.index[table["verdict"] == "not tried"]) == {"graph", "double", "slow"}
    assert "raise trials.budget" in table.loc["graph", "why"] and table["expected"].isna().all()
    path = tried(tmp_path / "few", {"": 10.0, "bf16": 5.0}, tried=["bf16", "graph"])
    trial_table.main([str(path)], None, 0.02, str(tmp_path / "few.csv"))
    why = reading.read(tmp_path / "few.csv", trial_table.TRIALS_TABLE).set_index("settings")["why"]
    assert "raise trials.max_settings" in why["slow"] and "raise trials.budget" in why["graph"] and why["bf16"] == ""


def test_one_process_a_side_has_no_interval(tmp_path: Path) -> None:
    path = tried(tmp_path / "lstm", {"": 10.0, "bf16": 5.0})
    facts = json.loads(Path(f"{path}.json").read_text())
    rows = reading.read(path, trial_table.REPEATED)
    few = facts | {"processes": facts["processes"][:2]}
    table = trial_table.tabulate_trials(
        [({"model": "lstm", "phase": "train"}, rows[rows["process"] < 2], few)], {}, 0.02
    )
    assert table.loc[0, "verdict"] == "undecided" and np.isnan(table.loc[0, "gain_low"])
    assert "no setting is clearly faster" in cli.format_trials(table)[0]


def test_what_failed_in_a_later_round_has_one_row(tmp_path: Path) -> None:
    path = tried(tmp_path / "lstm", {"": 10.0, "bf16": 5.0, "double": 8.0}, failed={"bf16": "no memory", "graph": "no"})
    trial_table.main([str(path)], None, 0.02, str(tmp_path / "trials.csv"))
    table = reading.read(tmp_path / "trials.csv", trial_table.TRIALS_TABLE)
    assert table["settings"].tolist()[:3] == ["bf16", "double", "graph"]
    assert table["why"].tolist()[:3] == ["failed in a later round: no memory", "", "no"]
    # Its gain is told, but nobody is told to take it.
    said = cli.format_trials(table)
    assert (
        "with `batch=8`" in said[0]
        and "1.99 times as fast" in said[1]
        and "failed in a later round: no memory" in said[1]
    )
    assert (cli.best_row(table) or {})["settings"] == "double"
    assert savings_section.make_first_section([], {"trials": table})["trials"][0]["best"]["words"] == "batch=8"


def test_a_cell_that_failed_later_says_why_others_were_not_tried(tmp_path: Path) -> None:
    path = tried(tmp_path / "lstm", {"": 10.0, "bf16": 5.0}, failed={"": "no memory"}, ended="failed")
    trial_table.main([str(path)], None, 0.02, str(tmp_path / "trials.csv"))
    why = reading.read(tmp_path / "trials.csv", trial_table.TRIALS_TABLE).set_index("settings")["why"]
    assert why["graph"] == "the unchanged cell had failed: no memory" and "" not in why.index


def test_the_fastest_that_is_sure_is_told_where_what_was_chosen_is_not(tmp_path: Path) -> None:
    path = tried(tmp_path / "lstm", {"": 10.0, "bf16": 5.0, "bf16+double": 4.0}, chosen="bf16+double", ended="budget")
    facts = json.loads(Path(f"{path}.json").read_text())
    rows = reading.read(path, trial_table.REPEATED)
    # Of what was put together one process ran, in a round without the cell as it is.
    facts["processes"] = [own | {"round": 9 if place == 8 else own["round"]} for place, own in enumerate(facts["processes"])
                          if place not in (2, 5)]  # fmt: skip
    rows = rows[~rows["process"].isin([2, 5])]
    table = trial_table.tabulate_trials([({"model": "lstm", "phase": "train"}, rows, facts)], {}, 0.02)
    said = cli.format_trials(table)
    assert said[0].startswith("lstm train runs 1.99") and "with `precision=bf16`" in said[0]
    assert not any("nan" in line for line in said)
    (line,) = [line for line in said if "bf16+double" in line]
    assert line.endswith("undecided: no gain, because the unchanged cell failed in every round with it")
    assert savings_section.make_first_section([], {"trials": table})["trials"][0]["best"]["words"] == "precision=bf16"


def test_scores_tell_the_halves_of_the_zoo_apart() -> None:
    rows = [("bert", 2.0, 2.0, "hit", "a"), ("lstm", 1.5, 1.0, "miss", "b"), ("gpt", 1.2, 0.6, "slowed down", "a"),
            ("gpt", 1.2, 1.0, "hit", "b"), ("spade", 1.0, 1.0, "", "")]  # fmt: skip
    table = pd.DataFrame(rows, columns=["model", "expected", "gain", "outcome", "advised_by"])
    table = table.assign(phase="train", settings="x", gain_low=table["gain"], gain_high=table["gain"], advised=True)
    table = table.assign(verdict="undecided")
    table = table.assign(expected_low=table["expected"] - 0.3, expected_high=table["expected"] + 0.3)
    found = advice_scoring.score_verdicts(table).set_index(["half", "verdict"])
    one, other = found.loc[("fitted", "all")], found.loc[("held_out", "all")]
    assert one[["trials", "median_error", "hits", "slowed_down"]].tolist() == [2, 0.25, 0.5, 0]
    # Of errors of none and of a half the next may be as large as the largest.
    assert one["error"] == 0.5 and one["covered"] == 0.5 and one["helped"] == 0.5
    assert found.loc[("held_out", "a"), "slowed_down"] == 1 and found.loc[("held_out", "a"), "error"] == 1
    assert other["median_error"] == pytest.approx(0.6) and other["helped"] == 0 and other["covered"] == 0.5
    assert advice_scoring.largest_misses(table)["model"].tolist() == ["gpt", "lstm"]
    # Of what nobody advised the errors count alone.
    some = advice_scoring.score_verdicts(table.assign(advised=table["advised_by"] == "b")).set_index(
        ["half", "verdict"]
    )
    assert some.loc[("held_out", "a"), ["trials", "advised", "error", "slowed_down"]].tolist() == [1, 0, 1, 0]
    assert some.loc[("held_out", "all"), ["trials", "advised", "slowed_down"]].tolist() == [2, 1, 0]


def test_scores_say_what_they_leave_out() -> None:
    """Of three trials of the held-out half, two settings: widths of 4, 2 and 1.5; 1 is in the first interval alone.

    On the other half graph gained 1, 2 and 4, and tf32 3: of gains of 1, 4 and 2 a constant of 2, 2 and 3 is off by 1, 0.5
    and 0.5. Of the three that were advised the trials tell of two whether they helped.
    """
    rows = [
        ("bert", "graph", 1.0, 1.0, 1.0, 1.0, "faster"), ("lstm", "graph", 2.0, 2.0, 2.0, 2.0, "faster"),
        ("unet", "graph", 4.0, 4.0, 4.0, 4.0, "faster"), ("unet", "tf32", 3.0, 3.0, 3.0, 3.0, "faster"),
        ("gpt", "graph", 1.0, 1.1, 0.5, 2.0, "undecided"), ("spade", "graph", 4.0, 3.0, 2.0, 4.0, "faster"),
        ("gnmt", "tf32", 2.0, 2.0, 1.2, 1.8, "faster"),
    ]  # fmt: skip
    names = ["model", "settings", "gain", "expected", "expected_low", "expected_high", "verdict"]
    table = pd.DataFrame(rows, columns=names).assign(phase="train", advised=True, advised_by="a", outcome="hit")
    found = advice_scoring.score_verdicts(table).set_index(["half", "verdict"]).loc[("held_out", "all")]
    assert found[["width", "tells", "constant_error", "undecided"]].tolist() == pytest.approx([2, 2 / 3, 0.5, 1 / 3])
    fitted = advice_scoring.score_verdicts(table).set_index(["half", "verdict"]).loc[("fitted", "all")]
    # By the held-out half's 2.5 and 2: 1.5, 0.25, 0.375 and a third.
    assert fitted["constant_error"] == pytest.approx((0.375 + 1 / 3) / 2) and fitted["undecided"] == 0
    # An interval that ends at 1 does not tell: the first of four.
    assert fitted["tells"] == 0.75
    known = advice_scores.check_scores(
        yaml.safe_load(
            advice_scoring.update_scores_text(advice_scoring.score_verdicts(table), advice_scores.FILE.read_text())
        )
    )
    said = known.columns("a")["score"]
    assert said == (
        "In 3 trials, such gains were off by 10% in the median; the same gain for all cells would be off by 50%. "
        "Of 3 cells, 0 became slower and 1 is undecided."
    )


def test_what_is_claimed_of_the_trials_is_what_their_tables_say() -> None:
    """The numbers of docs/measured/trials.md that say what the others are worth."""
    each = [reading.read(DATA / name, trial_table.TRIALS_TABLE) for name in ("h200.csv", "h200-2.csv")]
    table = pd.concat(each, ignore_index=True).query("outcome != ''")
    held_out = table[table["model"].map(advice_scoring.find_half) == advice_scoring.HELD_OUT]
    assert (
        forecast_skill.interval_widths(held_out).median() == pytest.approx(2.45, abs=0.01)
        and forecast_skill.excludes_no_gain(held_out).sum() == 28
    )
    advised = table[table["advised"]]
    assert (len(advised), forecast_skill.is_undecided(advised).sum(), advised["verdict"].eq("faster").sum()) == (
        24,
        12,
        12,
    )
    known = advice_scoring.score_verdicts(table).set_index(["half", "verdict"]).loc["held_out"]
    assert known.loc["all", ["median_error", "constant_error"]].tolist() == pytest.approx([0.125, 0.216], abs=5e-4)
    both = known.loc[[name for name in known.index if "+" in name]]
    assert len(both) == 2 and (both["constant_error"] < both["median_error"]).all()


def test_scores_are_recorded_in_their_file(tmp_path: Path) -> None:
    """What its first lines say, and what is to be done without scores, stays as it is."""
    columns_ = ["model", "expected", "gain", "outcome", "advised_by"]
    table = pd.DataFrame(
        [("gpt", 1.2, 0.9, "slowed down", "a")] * 3 + [("bert", 2.0, 1.0, "miss", "b")] * 9, columns=columns_
    )
    table = table.assign(expected_low=1.0, expected_high=1.5, advised=True, settings="x", verdict="slower")
    text = advice_scoring.update_scores_text(advice_scoring.score_verdicts(table), advice_scores.FILE.read_text())
    found = advice_scores.check_scores(yaml.safe_load(text))
    known = advice_scores.load_scores()
    assert text.startswith(advice_scores.FILE.read_text().partition("\nfitted:")[0])
    assert (found.enough, found.coin, found.unscored_error) == (known.enough, known.coin, known.unscored_error)
    assert found.held_out["a"].trials == 3 and found.held_out["a"].median_error == pytest.approx(0.3333)
    # Intervals widen by what is known of the models that rules are fitted to, of that verdict or of all.
    assert found.error("b") == found.error("a") == 1 and set(found.fitted) == {"b", "all"}
    assert found.abstains("a") and not found.abstains("b")
    assert (
        found.columns("a")["score"] == "abstains: in trials, such advice helped 0 of 3 cells, no more than a coin would"
    )
    assert found.columns("b") == {"trials": 0, "score": advice_scores.UNSCORED}
    # As it abstains, it is advised no more, and abstains still.
    text = advice_scoring.update_scores_text(advice_scoring.score_verdicts(table.assign(advised=False, gain=1.2)), text)
    silent = advice_scores.check_scores(yaml.safe_load(text))
    assert silent.abstains("a") and silent.held_out["a"].median_error == 0 and silent.held_out["a"].trials == 3
    again = advice_scoring.update_scores_text(advice_scoring.score_verdicts(table[:0]), text)
    assert advice_scores.check_scores(yaml.safe_load(again)).held_out == {}


def test_the_scores_are_those_of_the_trials() -> None:
    table = pd.concat(
        [reading.read(path, trial_table.TRIALS_TABLE) for path in sorted(DATA.glob("*.csv"))], ignore_index=True
    )
    text = advice_scores.FILE.read_text()
    assert advice_scoring.update_scores_text(advice_scoring.score_verdicts(table), text) == text
    halves = table.assign(half=table["model"].map(advice_scoring.find_half)).query("outcome != ''").groupby("half")
    assert halves.size().to_dict() == {"fitted": 38, "held_out": 80}


def test_one_process_may_be_as_far_from_others_as_those_were_whose_settings_changed_nothing() -> None:
    table = reading.read(DATA / "h200.csv", trial_table.TRIALS_TABLE)
    fitted = table["model"].map(advice_scoring.find_half).eq("fitted") & table["settings"].eq("tf32")
    same = table[fitted & (table["expected"] - 1).abs().lt(0.05)]
    # Of the mean difference of so many pairs of processes, that of one of a pair is told.
    one = np.sqrt((np.log(same["gain"] / same["expected"]) ** 2 * same["processes"] / 2).mean())
    assert len(same) == 6
    assert advice_scores.load_scores().unrepeated == pytest.approx(
        stats.t.ppf(0.95, len(same)) * one * np.sqrt(2), abs=0.005
    )


def test_few_trials_are_no_score() -> None:
    some = advice_scores.Score(
        trials=8, advised=8, median_error=0.1, error=0.2, over=0.2, covered=1, helped=1, slowed_down=0
    )
    # Nine of ten errors want nine errors at least.
    assert advice_scores.Scores(3, 0.5, 0.61, 0.21, {"a": some}, {}).error("a") == 0.61
    one = advice_scores.Score(
        trials=2, advised=2, median_error=0.1, error=0.2, over=0.2, covered=1, helped=0, slowed_down=1
    )
    few = advice_scores.Scores(3, 0.5, 0.61, 0.21, {"a": one}, {"a": one})
    assert few.error("a") == 0.61 and not few.abstains("a")
    assert few.columns("a")["score"] == "too few trials of such advice: 2 of 3"
    enough = dataclasses.replace(one, trials=9, advised=8, helped=0.75, slowed_down=0.125)
    many = advice_scores.Scores(3, 0.5, 0.61, 0.21, {"a": enough}, {"a": enough})
    said = "In 9 trials, such gains were off by 10% in the median. Of 8 cells, 1 became slower."
    assert many.error("a") == 0.2 and many.columns("a")["score"] == said
    untold = dataclasses.replace(one, trials=9, advised=0, helped=0, slowed_down=0)
    none = advice_scores.Scores(3, 0.5, 0.61, 0.21, {}, {"a": untold})
    assert (
        not none.abstains("a")
        and none.columns("a")["score"] == "In 9 trials, such gains were off by 10% in the median."
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: c.update(enuogh=1), "unknown key 'enuogh'; did you mean 'enough'?"),
        (lambda c: c.pop("coin"), "'coin' is missing"),
        (lambda c: c["held_out"].update(a={"trials": 1}), "held_out.a: 'advised' is missing"),
        (lambda c: c.update(fitted=[]), "fitted is no mapping"),
        (lambda c: c.update(coin="half"), "coin = 'half' is no number from 0 on"),
    ],
)
def test_a_file_of_scores_that_says_something_else_is_refused(spoil: Callable, said: str) -> None:
    content = yaml.safe_load(advice_scores.FILE.read_text())
    spoil(content)
    with pytest.raises(ConfigError) as error:
        advice_scores.check_scores(content)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_the_benchmark_prints_and_records_scores(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(advice_scores, "FILE", tmp_path / "scores.yaml")
    text = Path(advice_scores.__file__).with_name("scores.yaml").read_text()
    advice_scores.FILE.write_text(text)
    columns_ = {name: "" if kind is column_types.TEXT else np.nan for name, kind in trial_table.COLUMNS.items()}
    row = columns_ | {"model": "gpt", "phase": "train", "processes": 3, "chosen": False, "advised": True, "advised_by": "launch-bound",
                     "expected": 2.0, "gain": 1.8, "outcome": "hit", "expected_low": 1.5, "expected_high": 2.5}  # fmt: skip
    for place in range(2):
        rows = [row | {"settings": f"{place}.{number}", "words": f"batch={number}"} for number in range(2)]
        write_csv(pd.DataFrame(rows, columns=list(trial_table.COLUMNS)), tmp_path / f"{place}.csv")
    verdict_score.main([str(tmp_path / f"{place}.csv") for place in range(2)])
    assert advice_scores.FILE.read_text() == text
    verdict_score.main([*(str(tmp_path / f"{place}.csv") for place in range(2)), "--write"])
    said = capsys.readouterr().out
    # One gain for all cells: of the other half there is none here. 2.5 is 1.67 times 1.5.
    assert (
        "| held_out | launch-bound | 4 | 11% | 0% | 11% | 100% | 1.67 times | 100% | 100% | 4 | 100% | 0% | 0% |"
        in said
    )
    assert said.count("| held_out | best plan | 1.80 | 1 | 0 | 0 | 0 |") == 4
    assert said.count("| held_out | best that was tried | 1.80 | 1 | 0 | 0 | 0 |") == 4
    assert said.count("| held_out | always graph=true precision=bf16 |  | 0 | 1 | 0 | 0 |") == 4
    assert (
        advice_scores.check_scores(yaml.safe_load(advice_scores.FILE.read_text())).held_out["launch-bound"].trials == 4
    )


def test_every_model_of_the_zoo_is_in_one_half() -> None:
    listed = [model for models in advice_scoring.model_halves().values() for model in models]
    assert sorted(listed) == sorted(registry.shipped_models()) and set(advice_scoring.model_halves()) == {
        advice_scoring.FITTED,
        advice_scoring.HELD_OUT,
    }
