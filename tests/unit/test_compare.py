"""Comparisons from files: sides, what differs, the table, what a terminal shows."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.compare import cli, comparison_table, contributions, counter_lines, differences, latency_table, sides
from profzoo.compare.sides import Side
from profzoo.config import configuration
from profzoo.errors import ConfigError, DataError
from profzoo.experiments import interleaved_runs
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.report import comparison_section
from profzoo.statistics import sequential
from profzoo.tools.sample import tables as samples

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


def test_processes_in_turn_become_a_row_with_its_interval(tmp_path: Path) -> None:
    path = measured(tmp_path / "results/unet", {"plain": 1e6, "bf16": 0.8e6, "tf32": 1e6})
    comparison_table.main(["plain", "bf16", "tf32"], [str(path)], {}, {}, 0.02, str(tmp_path / "compare.csv"))
    found = reading.read(tmp_path / "compare.csv", comparison_table.COMPARISON_TABLE).set_index("candidate")
    assert list(found["verdict"]) == ["faster", "equivalent"] and set(found["model"]) == {"unet"}
    row = found.loc["bf16"]
    assert row["ratio_low"] < 0.8 < row["ratio_high"] and row["ratio_high"] - row["ratio_low"] < 0.02
    assert (row["processes"], row["alternating"], row["differs"]) == (PROCESSES, True, "precision fp32 -> bf16")
    assert 0 <= row["between_share"] <= 1 and row["unsteady"] == ""


def test_sides_of_other_batches_are_compared_per_sample(tmp_path: Path) -> None:
    """4 samples in 1 ms and 8 in 1.6 ms: 250 and 200 us a sample, 0.8 of the time, and not 1.6."""
    path = measured(tmp_path / "results/unet", {"plain": 1e6, "wide": 1.6e6, "bf16": 1e6}, {"wide": 8})
    comparison_table.main(["plain", "wide", "bf16"], [str(path)], {}, {}, 0.02, str(tmp_path / "compare.csv"))
    table = reading.read(tmp_path / "compare.csv", comparison_table.COMPARISON_TABLE)
    row, same = table.to_dict("records")
    assert (row["per"], row["baseline_items"], row["candidate_items"], row["verdict"]) == ("sample", 4, 8, "faster")
    assert row["ratio_low"] < 0.8 < row["ratio_high"] and row["differs"] == "batch 4 -> 8; precision fp32 -> wide"
    assert row["baseline_ns"] == pytest.approx(250e3, rel=0.01) and row["candidate_ns"] == pytest.approx(
        200e3, rel=0.01
    )
    assert (same["per"], same["verdict"]) == ("step", "equivalent") and same["baseline_ns"] == pytest.approx(
        1e6, rel=0.01
    )
    said = "\n".join(cli.format_comparison(table))
    assert "wide against plain: 6 processes each, times per sample, alternating" in said
    assert "times are per sample, because a step has 4 samples on the reference side and 8 in the candidate\n" in said
    assert (
        re.search(r"2\d\d µs -> +\d+ µs per sample  faster, \d", said)
        and "bf16 against plain: 6 processes each, times per step, alternating" in said
    )
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
    path = measured(tmp_path / "results/unet", {"plain": 1e6, "bf16": 0.8e6})
    made = str(tmp_path / "latency.csv")
    latency_table.main(["plain", "bf16"], [str(path)], {}, made)
    found = reading.read(made, latency_table.LATENCY_TABLE)
    assert list(found["side"].unique()) == ["plain", "bf16"] and set(found["model"]) == {"unet"}
    median = found[found["percentile"] == 50].set_index("side")
    for side, ns in (("plain", 1e6), ("bf16", 0.8e6)):
        assert median.loc[side, "processes"] == PROCESSES
        shown = median.loc[side, "ns"]
        assert shown == pytest.approx(ns, rel=0.02) if median.loc[side, "needed_steps"] == 0 else pd.isna(shown)
    assert (found["needed_steps"] > 0).any()
    path.rename(tmp_path / "results/unet/train.time.csv")
    Path(f"{path}.json").rename(tmp_path / "results/unet/train.time.csv.json")
    alone = {"before": [str(tmp_path / "results/unet/train.time.csv")]}
    latency_table.main(["before"], [], alone, made)
    assert set(reading.read(made, latency_table.LATENCY_TABLE)["side"]) == {"before"}
    latency_table.main([], [], {}, made)
    assert reading.read(made, latency_table.LATENCY_TABLE).empty


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
    one = sampled(tmp_path, "unet", [200.0, 202.0, 198.0])
    for name, watts in (("unet@bf16", [100.0, 101.0, 99.0]), ("unet@bf16", [100.0])):
        files = {"plain": [one], "bf16": [sampled(tmp_path, name, watts)]}
        comparison_table.main(["plain", "bf16"], [str(path)], {}, files, 0.02, str(tmp_path / "compare.csv"))
        table = reading.read(tmp_path / "compare.csv", comparison_table.COMPARISON_TABLE)
        (row,) = table.to_dict("records")
        assert (row["baseline_item_j"], row["candidate_item_j"]) == (pytest.approx(10), pytest.approx(5))
        assert row["energy_ratio"] == pytest.approx(0.5, rel=1e-3)
        assert (row["energy_low"] < 0.5 < row["energy_high"]) == (len(watts) > 1) == pd.notna(row["energy_low"])
        assert "0.500 times the energy per sample" in "\n".join(cli.format_comparison(table))
    comparison_table.main(["plain", "bf16"], [str(path)], {}, {"plain": [one]}, 0.02, str(tmp_path / "compare.csv"))
    table = reading.read(tmp_path / "compare.csv", comparison_table.COMPARISON_TABLE)
    assert table["energy_ratio"].isna().all() and "energy" not in "\n".join(cli.format_comparison(table))


def test_processes_of_a_round_are_a_pair_where_all_worked_by_shifts(tmp_path: Path) -> None:
    path = measured(tmp_path / "unet", {"plain": 1e6, "bf16": 1e6})
    known = json.loads(Path(f"{path}.json").read_text())

    def told_of(shifts: list[int]) -> list[list[int]]:
        for number, (process, count) in enumerate(zip(known["processes"], shifts, strict=True)):
            process.update({"shifts": count, "round": number // 2})
        Path(f"{path}.json").write_text(json.dumps(known))
        return [
            list(side.rounds)
            for side in comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"]).values()
        ]

    assert told_of([5] * 2 * PROCESSES) == [list(range(PROCESSES))] * 2
    assert told_of([1, 5] * PROCESSES) != told_of([5] * 2 * PROCESSES)
    assert told_of([1] * 2 * PROCESSES) == [[], []]


def test_rounds_until_decided_are_judged_by_all_their_looks(tmp_path: Path) -> None:
    path = measured(tmp_path, {"plain": 1e6, "bf16": 8e5})
    whole = json.loads(Path(f"{path}.json").read_text())
    rows = {}
    for more in ({}, {"most_rounds": 20, "round_s": 2.5}):
        Path(f"{path}.json").write_text(json.dumps(whole | more))
        found = comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])
        (rows[bool(more)],) = comparison_table.tabulate_comparison(
            [({"model": "unet", "phase": "train"}, found, True)], 0.02
        ).to_dict("records")
    fixed, until = rows[False], rows[True]
    assert fixed["verdict"] == until["verdict"] == "faster" and until["missing_rounds"] == until["missing_ns"] == 0
    assert np.isnan(fixed["missing_rounds"])
    # The rounds that the table was made of, by hand.
    processes = comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])
    one, other = ([np.median(times) for times in processes[side].processes] for side in ("plain", "bf16"))
    said = sequential.decide(np.log(np.divide(other, one)).tolist(), 0.02)
    assert said.found and (until["ratio_low"], until["p_different"]) == (said.found.low, said.found.p_different)


def test_an_undecided_comparison_says_what_it_lacks(tmp_path: Path) -> None:
    path = measured(tmp_path, {"plain": 1e6, "bf16": 1.003e6})
    whole = json.loads(Path(f"{path}.json").read_text())
    Path(f"{path}.json").write_text(json.dumps(whole | {"most_rounds": 20, "round_s": 2.5}))
    found = comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])
    # With so small a margin, this is neither the same nor another.
    table = comparison_table.tabulate_comparison([({"model": "unet", "phase": "train"}, found, True)], 0.0031)
    (row,) = table.to_dict("records")
    assert row["verdict"] == "undecided" and row["missing_rounds"] > 0
    assert row["missing_ns"] == row["missing_rounds"] * 2.5e9
    (line,) = [line for line in cli.format_comparison(table) if "unet train" in line]
    assert f"(about {row['missing_rounds']:.0f} more rounds of both, " in line and "would decide)" in line


def test_one_process_a_side_is_undecided(tmp_path: Path) -> None:
    one, other = (comparison_table.MeasuredSide([np.full(9, time)], facts()) for time in (1e6, 2e6))
    (row,) = comparison_table.tabulate_comparison(
        [({"model": "a", "phase": "train"}, {"x": one, "y": other}, False)], 0.02
    ).to_dict("records")
    assert row["ratio"] == 2 and row["verdict"] == "undecided" and np.isnan(row["ratio_low"])


def test_steps_that_are_lost_are_told(tmp_path: Path) -> None:
    path = measured(tmp_path / "unet", {"plain": 1e6, "bf16": 1e6})
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match=rf"has {2 * PROCESSES * STEPS - 1} steps, but its sidecar says"):
        comparison_table.read_interleaved(path, f"{path}.json", ["plain", "bf16"])


def test_processes_of_a_side_that_differ_are_refused() -> None:
    assert interleaved_runs.find_difference(["a", "b", "a"], [facts(), facts(batch=8), facts()]) is None
    assert interleaved_runs.find_difference(["a", "b", "a"], [facts(), facts(), facts(batch=2)]) == (
        "processes of one side differ in batch: 4 and 2"
    )


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"candidate": ["bf17"]}, "candidate = 'bf17' is no variant, run or folder: did you mean 'bf16'?"),
        ({"candidate": ["plain"]}, "'plain' cannot be compared with itself"),
        ({"reference": "./nowhere", "candidate": ["bf16"]}, "reference = './nowhere' is no folder"),
    ],
)
def test_sides_that_are_none_are_refused_in_one_line(given: dict[str, Any], line: str) -> None:
    config = configuration.normalise_config(given)
    with pytest.raises(ConfigError) as caught:
        sides.sides_of(config)
    assert str(caught.value).startswith(line)


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
    assert differences.describe_sidecar_differences(one, other) == [
        "batch 4 -> 8", f"commit {'a' * 10} -> {'b' * 10}", "data.source synthetic -> folder",
    ]  # fmt: skip


def test_a_terminal_shows_each_cell_and_where_most_of_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = measured(tmp_path / "unet", {"plain": 1e6, "bf16": 1.3e6})
    comparison_table.main(["plain", "bf16"], [str(path)], {}, {}, 0.02, str(tmp_path / "compare.csv"))
    row = {"model": "unet", "phase": "train", "baseline": "plain", "candidate": "bf16", "baseline_ns": 1e6}
    row |= {"candidate_ns": 1.3e6, "delta_ns": 3e5, "delta_share": 0.3}
    seen = pd.DataFrame(
        [
            row | {"level": "part", "range": "", "name": "idle_host", "change": ""},
            row | {"level": "kernel", "range": "forward", "name": "gemm", "change": contributions.APPEARED},
        ]
    ).reindex(columns=list(contributions.COLUMNS))
    write_csv(seen, tmp_path / "parts.csv")
    words = [str(tmp_path / "compare.csv"), "--parts", str(tmp_path / "parts.csv")]
    assert cli.main([*words, "--fail-on", "slower"]) == cli.EXIT_FAILING
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == [
        f"bf16 against plain: {PROCESSES} processes each, times per step, alternating",
        "  differs: precision fp32 -> bf16",
    ]
    assert printed[2].startswith("  unet train") and " slower" in printed[2] and "0.7" in printed[2]
    below = ["      idle host +300 µs", "      forward gemm +300 µs (appeared)", "  1 slower", counter_lines.NONE]
    assert printed[3:] == below
    assert cli.main(words) == 0 and cli.main([str(tmp_path / "none.csv")]) == 1
