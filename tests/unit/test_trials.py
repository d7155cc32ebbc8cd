"""Trials from files: which settings are tried, what was expected, the table, and what a terminal shows."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats  # type: ignore[import-untyped]

from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.experiments import interleaved_runs
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.plans import plan_table
from profzoo.plans.plan import IN_FORCE
from profzoo.report import savings
from profzoo.statistics import process_repeats, sequential
from profzoo.trials import cli, trial_table
from profzoo.verdicts import advice_scores
from tests.benchmarks import advice_scoring, verdict_score

STEPS = 10
DATA = Path(__file__).parents[1] / "data/trials"
CONFIG = configuration.normalise_config({"models": "lstm"})


def test_a_cell_has_the_panel_and_what_is_advised_to_try() -> None:
    config = configuration.normalise_config(
        {"models": "lstm", "trials": {"panel": ["bf16", "double_batch", "workers"]}}
    )
    found, refused = trial_table.candidate_words("lstm", "train", config)
    assert found["bf16"] == ["precision=bf16"] and not refused
    batch = next(word for word in trial_table.settings.setting_words(trial_table.settings.resolve_cell("lstm", "train", "time", config))
                 if word.startswith("batch="))  # fmt: skip
    assert f"batch={2 * int(batch.removeprefix('batch='))}" in found["double_batch"]
    # Advice has the name of the variant that follows it, else its own words.
    assert sorted(found["workers"]) == ["pin_memory=true", "workers=4"] and "precision=tf32" in found
    assert trial_table.name_candidate("pin_memory=true workers=4", config) == "workers"


def test_what_a_cell_has_is_not_tried_again() -> None:
    found, _ = trial_table.candidate_words("lstm@bf16", "train", CONFIG)
    assert "bf16" not in found and found["tf32"] == ["precision=tf32"]


def test_a_panel_may_name_joined_variants() -> None:
    config = configuration.normalise_config({"models": "lstm", "trials": {"panel": ["graph+bf16", "graph"]}})
    found, _ = trial_table.candidate_words("lstm", "train", config)
    assert list(found)[:2] == ["graph+bf16", "graph"] and set(found["graph+bf16"]) == {"graph=true", "precision=bf16"}
    assert trial_table.name_candidate("precision=bf16 graph=true", config) == "graph+bf16"
    own, _ = trial_table.candidate_words("lstm@fused", "train", config)
    assert own["graph+bf16"] == found["graph+bf16"]
    config["trials"]["panel"] = ["graph+bf61"]
    with pytest.raises(ConfigError, match=r"trials\.panel: 'bf61' is not a variant: .*bf16"):
        trial_table.candidate_words("lstm", "train", config)


def test_expected_gains_are_those_of_plans(tmp_path: Path) -> None:
    row = {**dict.fromkeys(plan_table.COLUMNS, ""), "median_error": np.nan, "covered": np.nan, "trials": np.nan, "gain_high": np.nan,
           "model": "lstm", "phase": "train", "rank": 1, "gain": 1.5, "settings": "precision=bf16", "verdicts": "memory-bound",
           "gain_low": 1.2, "advised": True}  # fmt: skip
    none = {"gain": np.nan, "gain_low": np.nan, "settings": "compile=true", "rank": 4, "verdicts": "", "advised": False}
    others = [{"gain": 1.4, "settings": "graph=true channels_last=true", "rank": 2, "advised": False},
              none | {"not_possible": "it fails"}, none | {"settings": "pin_memory=true", "rank": 5, "not_possible": IN_FORCE}]  # fmt: skip
    write_csv(pd.DataFrame([row, *({**row, **other} for other in others)]), tmp_path / "v.csv")
    given = (CONFIG, {"lstm train": 4}, {}, str(tmp_path / "e.json"))
    trial_table.write_expected_gains(str(tmp_path / "v.csv"), [], *given)
    known = {"low": 1.2, "high": None, "verdict": "memory-bound"}
    bf16 = {**known, "gain": 1.5, "advised": True, "rank": 1, "words": ["precision=bf16"]}
    both = {**known, "gain": 1.4, "advised": False, "rank": 2, "words": ["graph=true", "channels_last=true"]}
    fails = {
        "gain": None,
        "low": None,
        "high": None,
        "verdict": "",
        "advised": False,
        "rank": 4,
        "words": ["compile=true"],
    }
    # Without a name in the panel, plans are named by their words.
    own = {"bf16": bf16, "graph=true channels_last=true": both, "compile": fails | {"not_possible": "it fails"}}
    assert json.loads((tmp_path / "e.json").read_text()) == {"cells": {"lstm train": own}, "spreads": {}}


def test_spreads_are_those_of_baselines_of_several_processes(tmp_path: Path) -> None:
    """Three processes of one cell tell of its own spread, and of that of another cell, which has a single one."""
    paths = []
    for name, medians in (("lstm", (100, 101, 103)), ("unet", (50,))):
        paths.append(str(tmp_path / name / "train.time.csv"))
        Path(paths[-1]).parent.mkdir()
        rows = [f",{number},{step},{ns}00,,1,0" for number, ns in enumerate(medians) for step in range(3)]
        header = "side,process,step,wall_ns,gpu_ns,items,peak_memory_bytes"
        Path(paths[-1]).write_text("\n".join([header, *rows]) + "\n")
        Path(f"{paths[-1]}.json").write_text(json.dumps({"processes": [{}] * 3} if len(medians) > 1 else {}))
    logs = np.log([100, 101, 103]).tolist()
    found = trial_table.known_spreads(paths)
    assert found["lstm train"] == pytest.approx(dataclasses.asdict(sequential.learn_spread(logs, [])))
    assert found["unet train"] == pytest.approx(dataclasses.asdict(sequential.learn_spread([], [logs])))


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
    outcome = {
        "chosen": "bf16",
        "failed": {},
        "tried": [*known],
        "ended": "all",
        "trials": trials,
        "words": {},
        "cell": {},
    }
    Path(f"{path}.json").write_text(json.dumps(found | outcome | more))
    return path


def tabulated(path: Path) -> pd.DataFrame:
    """The table of the trials of a cell, of which nothing was expected, as it is read again."""
    trial_table.main([str(path)], None, 0.02, str(path.with_name("trials.csv")))
    return reading.read(path.with_name("trials.csv"), trial_table.TRIALS_TABLE)


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
    table = tabulated(path).set_index("settings")
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
    _, said = trial_table._decide(before, after, 0.02, {"round_s": 4.0})
    assert said == {
        "verdict": "undecided",
        "why": "128 rounds would not decide: stop other programs, or time more steps",
    }


def test_what_failed_in_a_later_round_has_one_row(tmp_path: Path) -> None:
    path = tried(tmp_path / "lstm", {"": 10.0, "bf16": 5.0, "double": 8.0}, failed={"bf16": "no memory", "graph": "no"})
    table = tabulated(path)
    assert table["settings"].tolist()[:3] == ["bf16", "double", "graph"]
    assert table["why"].tolist()[:3] == ["failed in a later round: no memory", "", "no"]
    # Its gain is told, but nobody is told to take it.
    said = cli.format_trials(table)
    assert (
        "with `batch=8`" in said[0]
        and said[1] == "  in your own code: DataLoader(..., batch_size=8)"
        and "1.99 times as fast" in said[2]
        and "failed in a later round: no memory" in said[2]
    )
    assert (cli.best_row(table) or {})["settings"] == "double"
    assert savings.make_first_section([], {"trials": table})["trials"][0]["best"]["words"] == "batch=8"


def test_the_scores_are_those_of_the_trials() -> None:
    table = pd.concat(map(verdict_score.read_trials, verdict_score.TABLES), ignore_index=True)
    text = advice_scores.FILE.read_text()
    again = "python -m tests.benchmarks.verdict_score --write"
    code = yaml.safe_load(text)["code"]
    assert code == advice_scoring.digest_code(), f"expected gains come from code that has changed since: {again}"
    made = verdict_score.list_origins(verdict_score.TABLES, table)
    assert advice_scoring.update_scores_text(advice_scoring.score_advice(table), text, made) == text, again
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
    # A round has as much to it, where nothing is known of a machine.
    assert sequential.ASSUMED.deviation == pytest.approx(one * np.sqrt(2), abs=0.002)


def test_few_trials_are_no_score() -> None:
    one = advice_scores.Score(
        trials=2, advised=2, median_error=0.1, error=0.2, over=0.2, covered=1, helped=0, slowed_down=1
    )

    def scores(**told: float) -> advice_scores.Scores:
        score = dataclasses.replace(one, **told)
        return advice_scores.Scores(3, 0.5, 0.61, 0.21, {"a": score}, {"a": score}, gpus=("gpu",))

    # Nine of ten errors want nine errors at least.
    assert (
        scores(trials=8).bound("a").error == 0.61
        and advice_scores.scores_on("gpu", scores(trials=9)).bound("a").error == 0.2
    )
    few = scores()
    assert few.bound("a").error == 0.61 and not few.abstains("a")
    said = "too few trials of such advice: 2 of 3; the interval is that of all settings"
    assert few.columns("a")["score"] == said
    known = {"trials": 9, "advised": 8, "helped": 0.75, "slowed_down": 0.125}
    off = "In 9 trials, such gains were off by 10% in the median"
    assert scores(**known).columns("a")["score"] == f"{off}. Of 8 cells, 1 became slower."
    said = scores(**known, constant_error=0.5, undecided=0.25).columns("a")["score"]
    others = "the same gain for all cells would be off by 50%. Of 8 cells, 1 became slower and 2 are undecided."
    assert said == f"{off}; {others}"
    none = scores(trials=9, advised=0, slowed_down=0)
    assert not none.abstains("a") and none.columns("a")["score"] == f"{off}."
    bad = scores(trials=9, advised=3)
    helped = "abstains: in trials, such advice helped 0 of 3 cells, no more than a coin would"
    assert bad.abstains("a") and bad.columns("a")["score"] == helped
    assert bad.columns("b") == {"trials": 0, "score": advice_scores.UNSCORED}


def test_a_file_of_scores_that_says_something_else_is_refused() -> None:
    spoilt: dict[str, dict[str, Any]] = {
        "unknown key 'enuogh'; did you mean 'enough'?": {"enuogh": 1},
        "'coin' is missing": {"coin": None},
        "held_out.a: 'advised' is missing": {"held_out": {"a": {"trials": 1}}},
        "fitted is not a mapping": {"fitted": []},
        "coin = 'half' is not a number from 0 on": {"coin": "half"},
    }
    for said, changes in spoilt.items():
        content = yaml.safe_load(advice_scores.FILE.read_text()) | changes
        with pytest.raises(ConfigError, match=re.escape(said)) as error:
            advice_scores.check_scores({key: value for key, value in content.items() if value is not None})
        assert "\n" not in str(error.value)
