"""Scores of planted cases: what counts as right, how gains are compared, and what archives hold."""

import math
import os
import subprocess
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.benchmarks import planted_score
from tests.planted import cases, collect, packing, plan_scoring, running, scoring, try_out

CASE = cases.Case(
    name="one", half=cases.DEVELOPMENT, family="gpt", kind="loss", planted="A loss is written out.",
    first_cause=("unfused loss", "memory-bound elementwise"), graph_possible=False, remedy="Fused.",
)  # fmt: skip
RULES = Path(scoring.__file__).parents[2] / "profzoo" / "verdicts" / "rules.yaml"
MAPPING = {"fusion": ("unfused loss",), "launch-bound": ("host-launches",), "undecided": ()}


def write_steps(results: Path, name: str, steps_ns: list[float]) -> None:
    """Leave the steps of a cell where `time` leaves them."""
    (results / name).mkdir(parents=True)
    pd.DataFrame({"step": range(len(steps_ns)), "wall_ns": 1.0, "gpu_ns": steps_ns}).to_csv(
        results / name / "train.time.csv", index=False
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A case that takes twice the time of its twin."""
    write_steps(tmp_path, "one", [20.0, 20.0, 19.0, 21.0] * 3)
    write_steps(tmp_path, CASE.twin, [10.0] * 12)
    return tmp_path


def verdicts(verdict: str, settings: str = "", level: str = "cell", gain: float = 2.2) -> pd.DataFrame:
    """A table of one verdict."""
    row = {"model": "one", "phase": "train", "level": level, "rank": 1, "verdict": verdict, "settings": settings}
    return pd.DataFrame([row | {"gain": gain, "gain_low": gain - 0.4, "gain_high": gain + 0.4}])


def score(results: Path, table: pd.DataFrame, case: cases.Case = CASE) -> scoring.Scored:
    """The score of the case."""
    found = scoring.score_case(case, table, MAPPING, results)
    assert found is not None
    return found


def test_a_case_is_scored_by_its_first_verdict(results: Path) -> None:
    right = score(results, verdicts("fusion"))
    assert right.right and right.known and not right.impossible
    assert right.measured.gain == pytest.approx(2.0) and right.measured.low <= 2.0 <= right.measured.high
    assert right.error == pytest.approx(0.1) and right.holds
    wrong = score(results, verdicts("launch-bound", "graph=true"))
    assert not wrong.right and wrong.impossible
    assert not score(results, verdicts("launch-bound", "graph=true"), replace(CASE, graph_possible=True)).impossible
    assert not score(results, verdicts("launch-bound", "graph=true"), replace(CASE, graph_possible=None)).impossible
    # Of a layer alone, or of another cell, nothing is said about the cell.
    for table in (verdicts("fusion", level="layer"), verdicts("fusion").assign(model="two")):
        silent = score(results, table)
        assert not silent.right and silent.verdict == "" and math.isnan(silent.expected)
    assert not score(results, verdicts("fusion", gain=3.0)).holds
    assert scoring.score_case(replace(CASE, name="other"), verdicts("fusion"), MAPPING, results) is None


def test_a_summary_counts_cases(results: Path) -> None:
    scored = [score(results, verdicts(name, "graph=true")) for name in ("fusion", "launch-bound", "new")]
    lines = scoring.summarise(scored)
    assert lines[0] == "first cause right: 1 of 3 (33%)"
    assert "a graph advised that cannot be captured: 3 of 3" in lines
    assert "  median relative error: 10%" in lines and "  median width of the interval: 1.44 times" in lines
    assert lines[-1].endswith("does not know: new")


def plans(*settings: str, gain: float = 2.1, outlook: str = "expected to help") -> pd.DataFrame:
    """A table of plans for the case, each with less gain than the one before."""
    rows = [{"model": "one", "phase": "train", "rank": rank, "settings": words, "gain": gain - 0.1 * rank,
             "gain_low": 1.5, "gain_high": 2.5, "outlook": outlook} for rank, words in enumerate(settings)]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_best_plan_is_measured_by_a_twin_that_has_its_settings(results: Path) -> None:
    twin = replace(CASE, mended={"graph": True, "precision": "bf16"}, graph_possible=True)
    measured = score(results, verdicts("fusion")).measured
    found = plan_scoring.score_plan(twin, plans("precision=bf16 graph=true", "graph=true"), verdicts("fusion"))
    assert found.of_twin and found.error(measured) == pytest.approx(0.05) and not found.impossible and not found.apart
    other = plan_scoring.score_plan(CASE, plans("graph=true"), verdicts("fusion", "graph=true", gain=1.0))
    assert not other.of_twin and math.isnan(other.error(measured))
    assert other.impossible and other.apart == ("graph=true",)
    same = plan_scoring.score_plan(CASE, plans("graph=true", gain=2.2), verdicts("fusion", "graph=true", gain=2.2))
    assert same.apart == ()
    none = plan_scoring.score_plan(CASE, plans("graph=true", outlook="not possible"), verdicts("fusion"))
    assert none.settings == "" and math.isnan(none.gain)
    poor = plan_scoring.score_plan(CASE, plans("graph=true", outlook="not expected to help"), verdicts("fusion"))
    assert poor.settings == ""
    lines = plan_scoring.summarise_plans([(measured, one) for one in (found, other, none)])
    assert lines == [
        "cases with a plan: 2 of 3",
        "best plans with a graph that cannot be captured: 1",
        "best plans that are what the twin has: 1, median relative error 5%",
        "settings of which a verdict and a plan expect different gains: graph=true",
    ]


def test_scores_are_written_with_and_without_counters(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a case of the half, whose steps take as long as those of CASE."""
    case = cases.find_cases(cases.DEVELOPMENT)[0]
    for folder in ("plain", "counted"):
        own = results / folder / "results"
        write_steps(own, case.name, [20.0] * 12)
        write_steps(own, case.twin, [10.0] * 12)
        (own / "tables").mkdir()
        verdicts("synchronisation-bound").assign(model=case.name).to_csv(own / "tables" / "verdicts.csv", index=False)
        plans("workers=4").assign(model=case.name).to_csv(own / "tables" / "plans.csv", index=False)
    (results / "counted" / "results" / "tables" / "roofline.csv").write_text("model\n")
    planted_score.main([*(str(results / one) for one in ("plain", "counted")), "--csv", str(results / "scores.csv")])
    table = pd.read_csv(results / "scores.csv")
    assert table["counters"].tolist() == [False, True] and table["right"].all()
    assert table["error"].tolist() == pytest.approx([0.1, 0.1]) and table["plan"].tolist() == ["workers=4"] * 2
    said = capsys.readouterr().out
    assert "development, with counters: 1 of 20" in said and "| workers=4 | 2.10 [1.50, 2.50] |" in said


def test_an_interval_of_a_ratio_covers_what_steps_were_drawn_from() -> None:
    chance, held = np.random.default_rng(1), 0
    for _ in range(100):
        one, other = chance.normal(30.0, 2.0, 12), chance.normal(20.0, 1.0, 12)
        found = scoring.compare_steps(one, other)
        held += found.low <= 1.5 <= found.high
    assert held >= 85


def test_each_verdict_of_the_rules_has_a_cause() -> None:
    named = {rule["verdict"] for rules in yaml.safe_load(RULES.read_text()).values() if isinstance(rules, list)
             for rule in rules if isinstance(rule, dict) and "verdict" in rule}  # fmt: skip
    assert len(named) > 20 and named <= set(scoring.read_mapping())


def test_a_mapping_names_causes_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "mapping.yaml").write_text("launch-bound: [gremlins]\n")
    with pytest.raises(ValueError, match="'launch-bound' names gremlins"):
        scoring.read_mapping(tmp_path / "mapping.yaml")


def test_archives_leave_out_what_no_table_is_made_of(tmp_path: Path) -> None:
    results = tmp_path / "results"
    chance = np.random.default_rng(0)
    for name in ("one", "two", "three"):
        (results / name).mkdir(parents=True)
        (results / name / "train.nsys.sqlite").write_bytes(chance.bytes(40_000))
        for other in ("train.nsys-rep", "weights.pt", "train.time.csv"):
            (results / name / other).write_text("something")
    (results / "peaks").mkdir()
    (results / "peaks" / "gpu.csv").write_text("peak")
    made = packing.pack(results, ["one", "two", "three"], tmp_path / "out", "half", most=25_000)
    assert [path.name for path in made] == ["half-1.tar.xz", "half-2.tar.xz"]
    held = []
    for path in made:
        with tarfile.open(path) as packed:
            held.append(packed.getnames())
    assert all("results/peaks/gpu.csv" in names for names in held)
    cells = [name for names in held for name in names if "peaks" not in name]
    assert sorted(cells) == sorted(
        f"results/{one}/train.{other}" for one in ("one", "two", "three") for other in ("nsys.sqlite", "time.csv")
    )


def test_a_run_ends_with_its_children_when_time_is_up() -> None:
    command = ["bash", "-c", "sleep 600 & echo $!; wait"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert run.stdout is not None
    child = int(run.stdout.readline())
    began = time.monotonic()
    assert running.wait_for(run, began + 0.2) is None and time.monotonic() - began < running.ENDING_S
    # A program in the background of a shell ignores an interrupt, and dies a moment after it is killed.
    state = Path(f"/proc/{child}/stat")
    while state.exists() and state.read_text().split()[2] != "Z":
        assert time.monotonic() - began < running.ENDING_S
        time.sleep(0.01)
    assert run.returncode is not None


def test_what_is_not_as_it_should_be_is_marked() -> None:
    fast, slow = try_out.Tried(10.0, 1 << 30, 2.0), try_out.Tried(20.0, 2 << 30, 2.01)
    assert try_out.judge(CASE, (slow, fast)) == "one: 20.00 ms, mended 10.00 ms, 2.00 times, 2.0 GiB, loss 2.01 and 2"
    assert try_out.judge(CASE, (fast, fast)).endswith("CHECK gain")
    assert try_out.judge(CASE, (replace(slow, step_ms=80.0), fast)).endswith("CHECK step")
    assert try_out.judge(CASE, (replace(slow, peak_bytes=30 << 30), fast)).endswith("CHECK memory")
    assert try_out.judge(CASE, (replace(slow, loss=3.0), fast)).endswith("CHECK loss")
    assert try_out.judge(CASE, "no memory") == "one: FAILED no memory"


def test_each_case_is_tried_in_a_process_of_its_own() -> None:
    others = [replace(CASE, name=name) for name in ("two", "three")]

    def what(case: cases.Case) -> str:
        if case.name == "two":
            os._exit(1)
        return f"{case.name} by {os.getpid()}"

    found = list(try_out.try_each([CASE, *others], what, 2))
    assert found[1] == "its process died" and found[0].startswith("one by ") and found[2].startswith("three by ")
    assert len({found[0].split()[-1], found[2].split()[-1], str(os.getpid())}) == 3


def test_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    case = cases.find_cases(cases.DEVELOPMENT)[0]
    missing = collect.missing_files(case, tmp_path, tiny=False)
    names = {Path(path).parent.name for path in missing}
    assert names == {case.name, case.twin}
    of_twin = {Path(path).name for path in missing if Path(path).parent.name == case.twin}
    assert of_twin == {"train.time.csv", "train.time.csv.json"}
    for path in missing:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text("")
    assert collect.missing_files(case, tmp_path, tiny=False) == []
    with pytest.raises(SystemExit, match="has no nonsense"):
        collect.choose_cases(cases.DEVELOPMENT, "nonsense")


def test_the_half_that_is_held_out_has_to_be_asked_for(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "results" / "tables").mkdir(parents=True)
    verdicts("fusion").to_csv(results / "results" / "tables" / "verdicts.csv", index=False)
    planted_score.main([str(results)])
    assert capsys.readouterr().out.startswith("development, without counters: 0 of 20")
    planted_score.main([str(results), "--half", "held_out"])
    assert capsys.readouterr().out.startswith("held_out, without counters: 0 of 20")
