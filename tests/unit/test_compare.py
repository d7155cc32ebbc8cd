"""Comparisons from files: sides, what differs, the table, what a terminal shows."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.cell import settings
from profzoo.compare import cli, comparison_table, contributions, counter_changes, numerics, sides
from profzoo.compare.sides import Side
from profzoo.config import configuration
from profzoo.errors import ConfigError, DataError
from profzoo.experiments import interleaved_runs
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.report import comparison_section
from profzoo.statistics import sequential
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED
from profzoo.tools.sample import tables as samples
from tests.numeric_runs import steps_of

PROCESSES, STEPS = 6, 12


def facts(**changes: Any) -> dict[str, Any]:
    """A sidecar of an unprofiled run, or what a process of one says."""
    known = {
        "device": "NVIDIA H100", "started": "2026-11-22T10:00:00", "parameters": 10, "batch": 4, "peak_rss_bytes": 1,
        "items": 4 * STEPS, "steps": STEPS, "step_ns": 1e6, "peak_memory_bytes": None, "loss": 0.5, "torch": "2.11",
        "cell": {"workload": "trimmed", "precision": "fp32", "model": "unet"},
    }  # fmt: skip
    return known | changes


def rows(step_ns: float, seed: int, items: int = 4) -> str:
    """Steps of a process: its own speed, and the spread of its steps."""
    random = np.random.default_rng(seed)
    times = step_ns * np.exp(random.normal(0, 0.002) + random.normal(0, 0.01, STEPS))
    lines = [f"{step},{round(time)},{round(time)},{items},1" for step, time in enumerate(times)]
    return "\n".join(["step,wall_ns,gpu_ns,items,peak_memory_bytes", *lines]) + "\n"


def measured(folder: Path, speeds: dict[str, float], batches: dict[str, int] | None = None) -> Path:
    """Processes of these sides in turn, with so many ns a step, as harness/rounds joins them."""
    batches = dict.fromkeys(speeds, 4) | (batches or {})
    folder.mkdir(parents=True, exist_ok=True)
    order, given = sides.interleave(list(speeds), PROCESSES, "unet train"), []
    for number, side in enumerate(order):
        (own := folder / f"{number}.part").write_text(rows(speeds[side], number, batches[side]))
        given.append((side, own))
    path = folder / "train.plain-vs-bf16.rounds.csv"
    each = [facts(batch=batches[side]) for side in order]
    found = interleaved_runs.summarize_processes(
        order, each, interleaved_runs.join_steps(given, path), next(iter(speeds))
    )
    cells = {side: {"model": "unet", "precision": "fp32" if side == "plain" else side} for side in speeds}
    Path(f"{path}.json").write_text(json.dumps(found | {"sides": cells}))
    return path


def compared_of(folder: Path, speeds: dict[str, float], batches: dict[str, int] | None = None) -> pd.DataFrame:
    """The table of a comparison of processes of these sides."""
    path = measured(folder / "results/unet", speeds, batches)
    comparison_table.main(list(speeds), [str(path)], {}, {}, 0.02, str(folder / "compare.csv"))
    return reading.read(folder / "compare.csv", comparison_table.COMPARISON_TABLE)


def test_processes_in_turn_become_a_row_with_its_interval(tmp_path: Path) -> None:
    found = compared_of(tmp_path, {"plain": 1e6, "bf16": 0.8e6, "tf32": 1e6}).set_index("candidate")
    assert list(found["verdict"]) == ["faster", "equivalent"] and set(found["model"]) == {"unet"}
    row = found.loc["bf16"]
    assert row["ratio_low"] < 0.8 < row["ratio_high"] and row["ratio_high"] - row["ratio_low"] < 0.02
    assert (row["processes"], row["alternating"], row["differs"]) == (PROCESSES, True, "precision fp32 -> bf16")
    assert 0 <= row["between_share"] <= 1 and row["unsteady"] == ""


def test_sides_of_other_batches_are_compared_per_sample(tmp_path: Path) -> None:
    """4 samples in 1 ms and 8 in 1.6 ms: 250 and 200 us a sample, 0.8 of the time, and not 1.6."""
    table = compared_of(tmp_path, {"plain": 1e6, "wide": 1.6e6, "bf16": 1e6}, {"wide": 8})
    row, same = table.to_dict("records")
    assert (row["per"], row["baseline_items"], row["candidate_items"], row["verdict"]) == ("sample", 4, 8, "faster")
    assert row["ratio_low"] < 0.8 < row["ratio_high"] and row["differs"] == "batch 4 -> 8; precision fp32 -> wide"
    assert [row["baseline_ns"], row["candidate_ns"]] == pytest.approx([250e3, 200e3], rel=0.01)
    assert (same["per"], same["verdict"]) == ("step", "equivalent")
    assert same["baseline_ns"] == pytest.approx(1e6, rel=0.01)
    page = comparison_section.comparison_context({"compare": table})["comparison"]
    of = page["columns"].index("times")
    assert [row[of]["value"] for row in page["rows"]] == ["per sample", ""]
    assert any("times are per sample" in line for line in page["sides"][0]["differs"])


def test_gpus_of_a_cell_have_a_batch_each(tmp_path: Path) -> None:
    """Twice the GPUs take as long for a step of twice the samples: half of the time of a sample."""
    path = measured(tmp_path / "unet", {"plain": 1e6, "two": 1e6}, {"two": 2 * 4})
    known = json.loads(Path(f"{path}.json").read_text())
    known["sides"]["two"] |= {"gpus": 2, "nodes": 1}
    Path(f"{path}.json").write_text(json.dumps(known))
    comparison_table.main(["plain", "two"], [str(path)], {}, {}, 0.02, str(tmp_path / "compare.csv"))
    (row,) = reading.read(tmp_path / "compare.csv", comparison_table.COMPARISON_TABLE).to_dict("records")
    assert (row["per"], row["candidate_items"]) == ("sample", 8) and row["ratio"] == pytest.approx(0.5, rel=0.01)


def test_any_side_may_begin_and_the_baseline_stays_what_it_is(tmp_path: Path) -> None:
    begins = [sides.interleave(["plain", "bf16"], 2, f"0 model{number} train")[0] for number in range(100)]
    assert 35 < begins.count("plain") < 65
    assert sides.interleave(["plain", "bf16"], 3, "unet train") == ["bf16", "plain", "plain", "bf16", "bf16", "plain"]
    for number in range(8):
        order = sides.interleave(list("abc"), 4, str(number))
        assert order[:3] == order[3:6][::-1] == order[6:9] and sorted(order[:3]) == list("abc")
    path = measured(tmp_path / "unet", {"plain": 1e6, "bf16": 2e6}, {"bf16": 2})
    assert pd.read_csv(path)["side"].iloc[0] == "bf16"
    found = comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])
    assert list(found) == ["plain", "bf16"] and np.median(found["plain"].processes[0]) == pytest.approx(1e6, rel=0.02)
    # What the sidecar says of all of them is of the baseline as well.
    known = json.loads(Path(f"{path}.json").read_text())
    assert (known["batch"], known["processes"][0]["batch"]) == (4, 2)


def test_percentiles_of_each_side(tmp_path: Path) -> None:
    """The steps of each side by themselves, the reference side first, whether sides ran in turn or each alone."""
    path, made = measured(tmp_path / "results/unet", {"plain": 1e6, "bf16": 0.8e6}), str(tmp_path / "latency.csv")

    def found(names: list[str], in_turn: list[str], alone: dict[str, list[str]]) -> pd.DataFrame:
        comparison_table.write_latency_table(names, in_turn, alone, made)
        return reading.read(made, comparison_table.LATENCY_TABLE)

    table = found(["plain", "bf16"], [str(path)], {})
    assert list(table["side"].unique()) == ["plain", "bf16"] and set(table["model"]) == {"unet"}
    median = table[table["percentile"] == 50].set_index("side")
    assert median["processes"].tolist() == [PROCESSES] * 2 and (table["needed_steps"] > 0).any()
    assert median["ns"].tolist() == pytest.approx([1e6, 0.8e6], rel=0.02)
    single = path.rename(tmp_path / "results/unet/train.time.csv")
    Path(f"{path}.json").rename(f"{single}.json")
    assert set(found(["before"], [], {"before": [str(single)]})["side"]) == {"before"} and found([], [], {}).empty


def test_folders_of_results_are_compared_as_they_are(tmp_path: Path) -> None:
    for name, step_ns, torch in (("before", 1e6, "2.10"), ("after", 1.2e6, "2.11")):
        folder = tmp_path / name / "unet"
        path = measured(folder, {"": step_ns})
        path.rename(folder / "train.time.csv")
        own = json.loads(Path(f"{path}.json").read_text()) | {"torch": torch}
        (folder / "train.time.csv.json").write_text(json.dumps(own))
    names = [str(tmp_path / name) for name in ("before", "after")]
    alone = {name: [f"{name}/unet/train.time.csv"] for name in names}
    comparison_table.main(names, [], alone, {}, 0.02, str(tmp_path / "compare.csv"))
    (row,) = reading.read(tmp_path / "compare.csv", comparison_table.COMPARISON_TABLE).to_dict("records")
    assert row["verdict"] == "slower" and not row["alternating"] and row["differs"] == "torch 2.10 -> 2.11"
    assert row["ratio_low"] < 1.2 < row["ratio_high"]


def test_numbers_that_were_repeated_apart_are_compared_where_they_are_of_the_timed_cell(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("before", "after")]
    alone = {name: [f"{name}/unet/train.time.csv"] for name in names}
    repeated = {name: [f"{name}/unet/train.numerics.json"] for name in names}

    def row(loss: float, **changes: Any) -> dict[str, Any]:
        for name, exact in zip(names, (1.0, loss), strict=True):
            (folder := Path(name, "unet")).mkdir(parents=True, exist_ok=True)
            (folder / "train.time.csv").write_text(rows(1e6, 0))
            own = facts(
                first_steps=steps_of([exact] * 3, weight_norm=1.0),
                sources={"models/unet.py": "a", "profzoo/other.py": "b"},
            )
            (folder / "train.time.csv.json").write_text(json.dumps(own))
            double = {
                "double_precision": {"steps": steps_of([exact] * 3, weight_norm=1.0)},
                "sources": {"models/unet.py": "a"},
            }
            (folder / "train.numerics.json").write_text(json.dumps(own | double | changes))
        comparison_table.main(names, [], alone, {}, 0.02, str(path := tmp_path / "compare.csv"), repeated)
        (found,) = reading.read(path, comparison_table.COMPARISON_TABLE).to_dict("records")
        return found

    assert row(1.0001)["numerics"] == numerics.DIFFERENT and "in double precision" in row(1.0001)["numerics_by"]
    assert "double precision" not in row(1.0)["numerics_why"]
    for changes in ({"sources": {"models/unet.py": "c"}}, {"cell": {"precision": "bf16"}}):
        assert comparison_table.OTHERWISE in row(1.0001, **changes)["numerics_why"]


def sampled(folder: Path, model: str, watts: list[float]) -> str:
    """Samples of a cell that took so much power in each of its processes, ten steps of two items in a second."""
    at = [index * 10**7 for index in range(100)]
    frames = [
        pd.DataFrame({"process": process, "t_ns": at, "gpu_uuid": "a", "power_w": power})
        for process, power in enumerate(watts)
    ]
    (folder / model).mkdir(parents=True, exist_ok=True)
    path = folder / model / "train.sample.csv"
    write_csv(pd.concat(frames).reindex(columns=list(samples.COLUMNS)), path)
    window = {"window_wall_ns": 10**9, "steps": 10, "items": 20}
    own = {**window, "power_is": "instant", "gaps": [], "processes": [window] * len(watts)}
    Path(f"{path}.json").write_text(json.dumps(own))
    return str(path)


def test_energy_is_compared_where_both_sides_were_sampled(tmp_path: Path) -> None:
    path = measured(tmp_path / "results/unet", {"plain": 1e6, "bf16": 0.8e6})
    one, other = sampled(tmp_path, "unet", [200.0, 202.0, 198.0]), sampled(tmp_path, "unet@bf16", [100.0, 101.0, 99.0])
    rows = []
    for files in ({"plain": [one], "bf16": [other]}, {"plain": [one]}):
        comparison_table.main(["plain", "bf16"], [str(path)], {}, files, 0.02, str(tmp_path / "compare.csv"))
        rows += reading.read(tmp_path / "compare.csv", comparison_table.COMPARISON_TABLE).to_dict("records")
    row, alone = rows
    assert (row["baseline_item_j"], row["candidate_item_j"]) == (pytest.approx(10), pytest.approx(5))
    assert row["energy_ratio"] == pytest.approx(0.5, rel=1e-3) and row["energy_low"] < 0.5 < row["energy_high"]
    assert np.isnan(alone["energy_ratio"])


def test_processes_of_a_round_are_a_pair_where_all_worked_by_shifts(tmp_path: Path) -> None:
    path = measured(tmp_path / "unet", {"plain": 1e6, "bf16": 1e6})
    known = json.loads(Path(f"{path}.json").read_text())["processes"]

    def rounds(shifts: list[int]) -> list[list[int]]:
        told = [
            one | {"shifts": count, "round": at // 2} for at, (one, count) in enumerate(zip(known, shifts, strict=True))
        ]
        return [list(side.rounds) for side in judged(path, processes=told)[1].values()]

    assert rounds([5] * 2 * PROCESSES) == [list(range(PROCESSES))] * 2 and rounds([1] * 2 * PROCESSES) == [[], []]
    assert rounds([1, 5] * PROCESSES) != rounds([5] * 2 * PROCESSES)
    # Processes that ran at once have no shifts.
    known = [one | {"beside": 2} for one in known]
    assert rounds([1] * 2 * PROCESSES) == [list(range(PROCESSES))] * 2


def judged(path: Path, margin: float = 0.02, **more: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The table of a measured comparison of plain and bf16 whose sidecar says more, and its sides."""
    told = Path(f"{path}.json")
    told.write_text(json.dumps(json.loads(told.read_text()) | more))
    found = comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])
    rows = [({"model": "unet", "phase": "train"}, found, True)]
    return comparison_table.tabulate_comparison(rows, margin), found


def test_rounds_until_decided_are_judged_by_all_their_looks(tmp_path: Path) -> None:
    path = measured(tmp_path, {"plain": 1e6, "bf16": 8e5})
    fixed, (until, found) = judged(path)[0].iloc[0], judged(path, most_rounds=20, round_s=2.5)
    row = until.iloc[0]
    assert fixed["verdict"] == row["verdict"] == "faster" and row["missing_rounds"] == row["missing_ns"] == 0
    assert np.isnan(fixed["missing_rounds"])
    # The rounds that the table was made of, by hand.
    one, other = ([np.median(times) for times in found[side].processes] for side in ("plain", "bf16"))
    said = sequential.decide(np.log(np.divide(other, one)).tolist(), 0.02)
    assert said.found and (row["ratio_low"], row["p_different"]) == (said.found.low, said.found.p_different)


def test_an_undecided_comparison_says_what_it_lacks(tmp_path: Path) -> None:
    path = measured(tmp_path, {"plain": 1e6, "bf16": 1.003e6})
    # With so small a margin, this is neither the same nor another.
    table, _ = judged(path, 0.0031, most_rounds=20, round_s=2.5)
    row = table.iloc[0]
    assert row["verdict"] == "undecided" and row["missing_rounds"] > 0
    assert row["missing_ns"] == row["missing_rounds"] * 2.5e9
    (line,) = [line for line in cli.format_comparison(table) if "unet train" in line]
    assert f"(about {row['missing_rounds']:.0f} more rounds of both, " in line and "would decide)" in line


def test_steps_that_are_lost_are_told(tmp_path: Path) -> None:
    path = measured(tmp_path / "unet", {"plain": 1e6, "bf16": 1e6})
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match=rf"has {2 * PROCESSES * STEPS - 1} steps, but its sidecar says"):
        comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])


def test_what_differs_in_work_is_told_of_the_candidate(tmp_path: Path) -> None:
    path = measured(tmp_path / "unet", {"plain": 1e6, "bf16": 1e6})
    known = json.loads(Path(f"{path}.json").read_text())
    for own in known["processes"]:
        own["parameters"] = 1000 if own["side"] == "plain" else 2000
    Path(f"{path}.json").write_text(json.dumps(known))
    comparison_table.main(["plain", "bf16"], [str(path)], {}, {}, 0.02, str(tmp_path / "compare.csv"))
    (row,) = reading.read(tmp_path / "compare.csv", comparison_table.COMPARISON_TABLE).to_dict("records")
    assert row["work"] == "parameters 1,000 -> 2,000"


def test_a_side_that_ran_with_other_settings_is_told(tmp_path: Path) -> None:
    path = measured(tmp_path / "unet", {"plain": 1e6, "bf16": 1e6})
    known = json.loads(Path(f"{path}.json").read_text())
    config = configuration.normalise_config({})
    known["sides"] = {side: settings.resolve_cell(name, "train", "time", config)
                      for side, name in (("plain", "unet"), ("bf16", "unet@bf16"))}  # fmt: skip
    for own in known["processes"]:
        own["ran_with"] = known["sides"][own["side"]]
    Path(f"{path}.json").write_text(json.dumps(known))
    comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])
    known["processes"][-1]["ran_with"] = known["sides"]["plain" if known["processes"][-1]["side"] == "bf16" else "bf16"]
    Path(f"{path}.json").write_text(json.dumps(known))
    with pytest.raises(DataError, match=r"a process of (plain ran with precision=bf16|bf16 ran with precision=fp32)"):
        comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])


def test_sides_that_are_none_are_refused_in_one_line() -> None:
    given: dict[str, dict[str, Any]] = {
        "candidate = 'bf17' is not a variant, run or folder: did you mean 'bf16'?": {"candidate": ["bf17"]},
        "'plain' cannot be compared with itself": {"candidate": ["plain"]},
        "reference = './nowhere' is not a folder": {"reference": "./nowhere", "candidate": ["bf16"]},
    }
    for line, more in given.items():
        with pytest.raises(ConfigError, match=f"^{re.escape(line)}"):
            sides.sides_of(configuration.normalise_config(more))


def test_sides_of_cells_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    config = configuration.normalise_config({"candidate": "bf16"})
    both = sides.sides_of(config)
    assert sides.name_sides(both) == "plain-vs-bf16" and sides.runs_in_turn(both)
    with pytest.raises(ConfigError, match="'lstm@fp16' names a variant"):
        sides.check_comparable(both, [("lstm@fp16", "train")], config)
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet/train.time.csv").touch()
    with pytest.raises(ConfigError, match="has no times of lstm train: did you mean 'unet train'"):
        sides.check_comparable([Side("x", tmp_path)], [("lstm", "train")], config)
    with pytest.raises(ConfigError, match="compare: name a candidate"):
        sides.check_comparable([], [("lstm", "train")], config)


def test_what_differs_is_said_in_words() -> None:
    one = facts(commit="a" * 40, cell={"precision": "fp32", "data": {"source": "synthetic"}, "steps": 5})
    other = facts(commit="b" * 40, batch=8, cell={"precision": "fp32", "data": {"source": "folder"}, "steps": 9})
    assert comparison_table.describe_sidecar_differences(one, other) == [
        "batch 4 -> 8", f"commit {'a' * 10} -> {'b' * 10}", "data.source synthetic -> folder",
    ]  # fmt: skip
    one = {
        "packages": {"timm": "1.0", "torch": "2.9.0"},
        "variables": {"OMP_NUM_THREADS": "1", "MODE": f"sha256:{'c' * 64}"},
    }
    other = {"packages": {"timm": "1.1", "torch": "2.10.0"}, "variables": {"MODE": f"sha256:{'d' * 64}"}}
    assert comparison_table.describe_sidecar_differences(one, other) == [
        "timm 1.0 -> 1.1", f"MODE {'c' * 10} -> {'d' * 10}", "OMP_NUM_THREADS 1 -> none",
    ]  # fmt: skip
    # Of an earlier version, which recorded no packages.
    assert comparison_table.describe_sidecar_differences({}, {"packages": {"timm": "1.0"}}) == []
    # Nor is what one side alone does not say; a commit is shortened.
    name, cells = "0123456789" * 4, [{"steps": 3, "batch": 1, "window": 2}, {"gpus": 2}]
    sides_ = [{"commit": name, "cell": cells[0]}, {"commit": f"{name}0", "driver": 5, "cell": cells[1]}]
    said = comparison_table.describe_sidecar_differences({"driver": None, **sides_[0]}, sides_[1])
    assert sorted(said) == [f"commit 0123456789 -> {name}0", "driver none -> 5", "gpus none -> 2"]


def test_a_terminal_shows_each_cell_and_where_most_of_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    compared_of(tmp_path, {"plain": 1e6, "bf16": 1.3e6})
    row = {"model": "unet", "phase": "train", "baseline": "plain", "candidate": "bf16", "baseline_ns": 1e6, "range": "",
           "candidate_ns": 1.3e6, "delta_ns": 3e5, "delta_share": 0.3, "level": "part", "name": "idle_host", "change": ""}  # fmt: skip
    kernel = {"level": "kernel", "range": "forward", "name": "gemm", "change": contributions.APPEARED}
    parts = pd.DataFrame([row, row | kernel]).reindex(columns=list(contributions.COLUMNS))
    write_csv(parts, tmp_path / "parts.csv")
    words = [str(tmp_path / "compare.csv"), "--parts", str(tmp_path / "parts.csv")]
    assert cli.main([*words, "--fail-on", "slower"]) == cli.EXIT_FAILING
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"bf16 against plain: {PROCESSES} processes each, times per step, alternating"
    assert printed[2].startswith("  unet train") and " slower" in printed[2] and "0.7" in printed[2]
    below = ["      idle host +300 µs", "      forward gemm +300 µs (appeared)", "  1 slower", counter_changes.NONE]
    assert printed[3:] == below
    assert cli.main(words) == 0 and cli.main([str(tmp_path / "none.csv")]) == 1


def test_no_candidate_makes_no_sides() -> None:
    config = configuration.normalise_config({"models": "lstm"})
    assert sides.sides_of(config) == []
    found = sides.sides_of({**config, "candidate": ["bf16", "tf32"]})
    assert [side.name for side in found] == ["plain", "bf16", "tf32"]
    assert sides.runs_in_turn(found) and not sides.runs_in_turn([])
    assert not sides.runs_in_turn([*found, sides.Side("old", Path("old"))])


COUNTER, POWER = comparison_table.ENERGY_METHODS


def test_energy_of_two_processes_a_side_has_an_interval() -> None:
    """Quotients of 2, 4 and 4, 8: the middle of their logarithms is that of 4."""
    found = comparison_table.compare_energies({POWER: [1.0, 2.0]}, {POWER: [4.0, 8.0]})
    assert (found["baseline_item_j"], found["candidate_item_j"]) == (1.5, 6)
    assert found["energy_ratio"] == pytest.approx(4) and found["energy_low"] < 2 and found["energy_high"] > 8
    # Medians of 2 and 4, by the counter, as both sides have it; one process has no interval.
    one = comparison_table.compare_energies({COUNTER: [1.0, 2, 9], POWER: [7.0]}, {COUNTER: [4.0], POWER: [7.0]})
    assert (one["baseline_item_j"], one["candidate_item_j"]) == (2, 4) and one["energy_ratio"] == pytest.approx(2)
    assert np.isnan([one["energy_low"], one["energy_high"]]).all()


def a_table(*rows: dict[str, Any]) -> pd.DataFrame:
    """Rows of a comparison of 100 and 80 ms, faster."""
    known = {"model": "unet", "phase": "train", "baseline": "plain", "candidate": "bf16", "baseline_ns": 1e8,
             "candidate_ns": 8e7, "ratio": 0.8, "ratio_low": 0.79, "ratio_high": 0.81, "verdict": FASTER,
             "processes": 5, "steps": 100, "alternating": True, "per": "step", "baseline_items": 4.0,
             "candidate_items": 4.0, "unsteady": "", "differs": "", "margin": 0.02, **numerics.UNKNOWN}  # fmt: skip
    return pd.DataFrame([known | row for row in rows]).reindex(columns=list(comparison_table.COLUMNS))


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({}, "100 ms ->     80 ms  faster, 1.25 times as fast [1.23, 1.27]"),
        ({"verdict": SLOWER, "ratio": 1.25, "ratio_low": 1.2, "ratio_high": 1.3, "candidate_ns": 1.25e8},
         "100 ms ->    125 ms  slower, 0.800 times as fast [0.769, 0.833]"),
        # The interval excludes 1 by 0.004 of 1.156, and its other end lies just beyond the margin of 2 %.
        ({"ratio": 1 / 1.48, "ratio_low": 1 / 2.16, "ratio_high": 1 / 1.004},
         "100 ms ->     80 ms  faster, not settled, 1.480 times as fast [1.004, 2.160]"),
        ({"verdict": SLOWER, "ratio": 1.48, "ratio_low": 1.0004, "ratio_high": 2.16},
         "100 ms ->     80 ms  slower, not settled, 0.6757 times as fast [0.4630, 0.9996]"),
        ({"verdict": UNDECIDED, "ratio": 1.0, "ratio_low": 1 / 1.0203, "ratio_high": 1 / 0.99},
         "100 ms ->     80 ms  undecided, 1.0000 times as fast [0.9900, 1.0203]"),
        ({"per": "sample"}, "100 ms ->     80 ms per sample  faster, 1.25 times as fast [1.23, 1.27]"),
        ({"verdict": UNDECIDED, "ratio_low": np.nan, "ratio_high": np.nan},
         "100 ms ->     80 ms  undecided, 1.25 times as fast (one process, so no interval)"),
        ({"energy_ratio": 0.5, "energy_low": 0.4, "energy_high": 0.6, "unsteady": "candidate: it drifts"},
         "100 ms ->     80 ms  faster, 1.25 times as fast [1.23, 1.27], 0.500 times the energy per sample [0.400, 0.600]"
         "; unsteady: candidate: it drifts"),
    ],
)  # fmt: skip
def test_a_cell_in_a_line(row: dict[str, Any], right: str) -> None:
    assert f"  unet train     {right}" in cli.format_comparison(a_table(row))


def test_what_is_said_of_several_cells() -> None:
    names = ["a", "b", "c", "d", "e"]
    table = a_table(
        *({"model": name, "differs": "batch 4 -> 8" if name != "e" else "", "verdict": FASTER if name != "e" else SLOWER,
           "per": "sample" if name != "e" else "step", "candidate_items": 8.0, "processes": 4 if name == "a" else 5}
          for name in names)
    )  # fmt: skip
    said = cli.format_comparison(table)
    assert said[0] == "bf16 against plain: 4 to 5 processes each, times per sample or per step, alternating"
    where = " (a train, b train, c train and 1 more)"
    assert said[1:4] == [
        f"  differs: batch 4 -> 8{where}",
        "  differs: no known setting (e train)",
        f"  times are per sample, because a step has 4 samples on the reference side and 8 in the candidate{where}",
    ]
    assert said[-1] == "  4 faster, 1 slower"
    apart = cli.describe_method(table.assign(alternating=[True, True, False, True, True], processes=5))
    assert apart.startswith("5 processes each, ") and "measured at different times, so drift" in apart
    assert cli.describe_differences(table[:3]) == ["batch 4 -> 8"]
    two = a_table({"model": "a"}, {"model": "b"}, {"model": "c"}, {"model": "d", "differs": "x"})
    assert cli.describe_differences(two)[0] == "no known setting (a train, b train, c train)"


def test_the_three_largest_parts_are_named_where_there_is_a_difference() -> None:
    keys = {"model": "unet", "phase": "train", "baseline": "plain", "candidate": "bf16", "range": "", "change": ""}
    moved = [("kernels", -3e6), ("copy", 2e6), ("idle_host", 0.0), ("transfer", 1.0)]
    rows = [keys | {"level": "part", "name": name, "delta_ns": ns} for name, ns in moved]
    rows += [keys | {"level": "part", "name": "waiting", "delta_ns": 9e9, "model": "other"}]
    rows += [rows[-1] | {"model": "unet", "candidate": "tf32"}]
    seen = pd.DataFrame(rows)
    said = cli.format_comparison(a_table({}), seen)
    assert said[3] == "      kernels -3 ms, copy +2 ms, idle host +0 ns" and said[4] == "  1 faster"
    assert len(cli.format_comparison(a_table({"verdict": EQUIVALENT}), seen)) == 4


def alike(medians: list[float], items: float = 1.0, **given: Any) -> comparison_table.MeasuredSide:
    """Processes of three steps each, in ms, that differ by nothing."""
    return comparison_table.MeasuredSide(
        [np.full(3, 1e6 * median) for median in medians], {"device": "H100"}, items=items, **given
    )


def tabulated(both: dict[str, comparison_table.MeasuredSide], alternating: bool = False) -> list[dict[str, Any]]:
    """The rows of a comparison of one cell."""
    rows = [({"model": "m", "phase": "train"}, both, alternating)]
    return comparison_table.tabulate_comparison(rows, 0.02).to_dict("records")


def test_a_row_of_four_processes_a_side() -> None:
    """Four of 1 ms and candidates of 2, 3, 4 and 6: the ends are 2 and 6, the middle one of logarithms sqrt(12).

    Of processes that each take the same for all steps all variance is between them.
    """
    (row,) = tabulated({"plain": alike([1, 1, 1, 1]), "bf16": alike([3, 2, 6, 4])})
    assert (row["ratio_low"], row["ratio_high"], row["ratio"]) == pytest.approx((2, 6, math.sqrt(12)))
    assert (row["baseline_ns"], row["candidate_ns"], row["steps"], row["processes"]) == (1e6, 3.5e6, 24, 4)
    assert (row["between_share"], row["per"], row["alternating"], row["verdict"]) == (1, "step", False, SLOWER)
    assert row["unsteady"] == "candidate: the slowest process takes 200% longer than the fastest"
    assert (row["device"], row["margin"], row["differs"]) == ("H100", 0.02, "")


def test_rows_of_one_process_and_of_other_batches() -> None:
    """4 samples in 8 ms and 16 in 16: 2 and 1 ms each, whichever candidate has as many."""
    wide, same = tabulated({"plain": alike([8, 8], 4.0), "wide": alike([16], 16.0), "same": alike([4, 4], 4.0)})
    assert (wide["per"], wide["baseline_ns"], wide["candidate_ns"], wide["ratio"]) == ("sample", 2e6, 1e6, 0.5)
    assert (wide["processes"], wide["verdict"]) == (1, UNDECIDED)
    assert np.isnan([wide[name] for name in ("ratio_low", "ratio_high", "p_different", "between_share")]).all()
    assert (same["per"], same["baseline_ns"], same["candidate_ns"], same["candidate"]) == ("step", 8e6, 4e6, "same")


def test_facts_of_both_sides_are_told_once_where_they_are_the_same() -> None:
    one, other = ({"device": name, "started": day} for name, day in (("A", "2026-01-02T10"), ("B", "2026-01-02T11")))
    both = {name: comparison_table.MeasuredSide([np.ones(3)], told) for name, told in (("plain", one), ("bf16", other))}
    (row,) = tabulated(both, True)
    assert (row["device"], row["date"], row["differs"]) == ("A -> B", "2026-01-02", "device A -> B")


def test_pairs_are_of_rounds_that_both_sides_worked_by_shifts() -> None:
    """Six candidates that each take 2 to 2.5 times what their pair takes, however unlike pairs are."""
    base, more = [1.0, 10, 100, 1000, 1e4, 1e5], [2.0, 2.1, 2.2, 2.3, 2.4, 2.5]
    rounds = [0, 1, 2, 3, 4, 5]
    of_pairs = [one * times for one, times in zip(base, more, strict=True)]
    for own, low in ((rounds, 2.0), ([], None), (rounds[1:], None)):
        both = {"plain": alike(base, rounds=rounds, places=[0, 3, 4, 7, 8, 11]),
                "bf16": alike(of_pairs, rounds=own, places=[1, 2, 5, 6, 9, 10])}  # fmt: skip
        (row,) = tabulated(both, True)
        if low:
            assert (row["ratio_low"], row["ratio_high"]) == pytest.approx((2, 2.5)) and row["verdict"] == SLOWER
        else:
            assert row["ratio_low"] < 1 and row["verdict"] == UNDECIDED


def test_a_run_is_a_side_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/monday").mkdir(parents=True)
    config = configuration.normalise_config({"models": "lstm"})
    found = sides.sides_of({**config, "candidate": ["monday"]})
    assert found[1] == sides.Side("monday", Path("runs/monday")) and found[1].of("lstm") == "lstm"


def test_launches_are_told_where_a_candidate_computes_something_else() -> None:
    table = a_table({"verdict": "different", "numerics": "different", "numerics_why": "outputs differ"})
    parts = pd.DataFrame([
        {"level": "class", "name": name, "baseline_launches": one, "candidate_launches": other, "range": "", "delta_ns": 0.0,
         "change": ""}
        for name, one, other in (("copy", 4.0, 4.0), ("product", 32.0, 8.0), ("softmax", 8.0, 2.0))
    ]).assign(model="unet", phase="train", baseline="plain", candidate="bf16")  # fmt: skip
    said = cli.format_comparison(table, parts)
    assert "different, 1.25 times as fast [1.23, 1.27]; computes something else (outputs differ)" in said[2]
    assert said[3] == "      launches 44 -> 14: product 32 -> 8, softmax 8 -> 2, copy 4 -> 4"
    assert cli.format_comparison(a_table({"numerics": "same"}), parts)[2].endswith("; computes the same")
    failing = [cli.find_failing(table, one).tolist() for one in cli.FAILING]
    assert failing == [[False], [True], [True]]
    assert cli.find_failing(a_table({"verdict": SLOWER}), cli.EITHER).tolist() == [True]
