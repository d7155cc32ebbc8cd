"""tools/sample: samples lie on the window's clock, planted power comes out, and the sampler ends as its program does."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from profzoo.collect import profile_ranks
from profzoo.errors import DataError
from profzoo.harness import recorders
from profzoo.import_graph import PROJECT
from profzoo.io import csv_tables as reading
from profzoo.machine import doctor_checks
from profzoo.tools.sample import activity, command, doctor, export, failures, nvml, tables
from tests import nvml as standin

SLEEP = "import time; time.sleep({})"
# What is printed when it fails, and a word of the advice that this gets.
LINES = [
    ("NVML: libnvidia-ml.so.1: cannot open shared object file: No such file or directory", "--nv"),
    ("NVML: nvmlInit_v2: Driver/library version mismatch", "restart the machine"),
    ("NVML: nvmlInit_v2: Driver Not Loaded", "kernel module"),
    ("NVML: nvmlDeviceGetHandleByUUID: Insufficient Permissions", "container"),
    ("NVML: no GPU is visible to this job", "CUDA_VISIBLE_DEVICES"),
    ("NVML: nvmlDeviceGetHandleByIndex_v2: GPU is lost", "log"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin.built(tmp_path_factory.mktemp("nvml"))


def words(out: Path, code: str, interval_ms: int = 5) -> list[str]:
    """A small Python program under the sampler."""
    _, *own = command.wrap_command(command.options({"interval_ms": interval_ms}), {"samples": out}, 1)
    return [sys.executable, *own, sys.executable, "-c", code]


def sampled(out: Path, code: str, env: dict[str, str], interval_ms: int = 5) -> subprocess.CompletedProcess[str]:
    asked = words(out, code, interval_ms)
    return subprocess.run(asked, cwd=PROJECT, env=env, capture_output=True, text=True, check=False, timeout=60)


def begun(out: Path, code: str, env: dict[str, str]) -> subprocess.Popen[str]:
    """That in the background, once the program has said that it is there."""
    process = subprocess.Popen(
        words(out, f"print('here', flush=True); {code}"), cwd=PROJECT, env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    return process


def raw(times_ns: list[int], uuid: str = "a", **columns: Any) -> pd.DataFrame:
    """The sampler's rows of a GPU."""
    rest = dict.fromkeys((own for own, _ in tables.UNITS.values()), 1)
    told = {"power_is": nvml.INSTANT, "power_limit_mw": 700_000, **rest, "energy_mj": 0} | columns
    return pd.DataFrame({"time_ns": times_ns, "gpu_uuid": uuid, **told})


def facts(**more: Any) -> dict[str, Any]:
    own = {
        "window_began_ns": 1000,
        "window_wall_ns": 2 * 10**9,
        "steps": 4,
        "items": 8,
        "device_uuid": "a",
        "warnings": [],
    }
    return own | {"power_is": nvml.INSTANT, "gaps": []} | more


def test_planted_power_and_energy_come_out(tmp_path: Path, library: Path) -> None:
    answer = sampled(tmp_path / "raw.csv", SLEEP.format(2.3), standin.environment(library))
    assert answer.returncode == 0, answer.stderr
    found = pd.read_csv(tmp_path / "raw.csv")
    # A window within the program's life, as a run has one.
    began, wall = int(found["time_ns"].iloc[0]) + 150_000_000, 1_900_000_000
    table = tables.select_window(found, began, wall)
    assert (
        tables.find_gaps(table, [{"window_wall_ns": wall}], [standin.UUIDS[0]]) == []
        and table["t_ns"].between(0, wall).all()
    )
    planted = standin.energy_j(began + wall) - standin.energy_j(began)
    told = tables.summarise_cell(table, facts(window_began_ns=began, window_wall_ns=wall, steps=10))
    assert told["step_energy_power_j"] == pytest.approx(planted / 10, rel=0.05)
    assert told["power_w"] == pytest.approx(planted / 1.9, rel=0.05)
    # From the counter's first move to its last is not quite the window, over which this power swings.
    moves = table[table["energy_j"].diff() > 0]["t_ns"] + began
    first, last = (moves.iloc[index] // 10**8 * 10**8 for index in (0, -1))
    counted = (standin.energy_j(last) - standin.energy_j(first)) / (last - first) * 1e9
    assert told["step_energy_counter_j"] == pytest.approx(counted * 0.19, rel=0.05)
    assert (told["sm_clock_hz"], told["temperature_max_c"]) == (1.98e9, 61)
    assert table[["memory_clock_hz", "gpu_utilisation_pct", "memory_utilisation_pct", "memory_used_bytes"]].iloc[
        0
    ].tolist() == [2.619e9, 87, 42, 2**36]


def test_only_the_gpus_of_the_job_are_sampled(tmp_path: Path, library: Path) -> None:
    for visible, seen in ((standin.UUIDS[1], standin.UUIDS[1:]), ("1,0", standin.UUIDS[::-1])):
        env = standin.environment(library, STANDIN_GPUS="2", CUDA_VISIBLE_DEVICES=visible)
        assert sampled(tmp_path / "raw.csv", SLEEP.format(0.1), env).returncode == 0
        assert pd.read_csv(tmp_path / "raw.csv")["gpu_uuid"].drop_duplicates().tolist() == seen


def test_a_driver_without_momentary_power_is_known(tmp_path: Path, library: Path) -> None:
    for mode, power_is, told in (("", nvml.INSTANT, True), ("old", nvml.MEAN, True), ("silent", nvml.MEAN, False)):
        env = standin.environment(library, STANDIN_NVML=mode)
        assert sampled(tmp_path / "raw.csv", SLEEP.format(0.1), env).returncode == 0
        found = pd.read_csv(tmp_path / "raw.csv")
        assert set(found["power_is"]) == {power_is}
        assert found["power_mw"].notna().all() == found["energy_mj"].notna().all() == told


@pytest.mark.parametrize(
    ("code", "expected"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0)]
)
def test_it_ends_as_the_program_does(tmp_path: Path, library: Path, code: str, expected: int) -> None:
    assert sampled(tmp_path / "raw.csv", code, standin.environment(library)).returncode == expected


def test_it_passes_on_a_signal_and_waits_for_the_program(tmp_path: Path, library: Path) -> None:
    heeding = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(5)); time.sleep(60)"
    for code, expected in ((heeding, 5), (SLEEP.format(60), 128 + signal.SIGTERM)):
        process = begun(tmp_path / "raw.csv", f"import signal, time; {code}", standin.environment(library))
        time.sleep(0.2)
        process.terminate()
        assert process.wait(30) == expected


def test_an_interval_that_cannot_be_kept_hinders_neither_samples_nor_signals(tmp_path: Path, library: Path) -> None:
    script = [sys.executable, "-c", SLOW, str(tmp_path / "raw.csv")]
    process = subprocess.Popen(script, cwd=PROJECT, env=standin.environment(library), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM


# Each sample takes longer than the interval.
SLOW = """
import sys, time
from profzoo.tools.sample import sampler
program = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
sys.exit(sampler.run_and_sample(program, lambda: time.sleep(0.05), 1))
"""


@pytest.mark.parametrize(
    ("mode", "visible", "advice"),
    [("mismatched", standin.UUIDS[0], "restart the machine"), ("", "-1", "CUDA_VISIBLE_DEVICES")],
)
def test_what_nvml_refuses_is_said_before_the_program_runs(
    tmp_path: Path, library: Path, mode: str, visible: str, advice: str
) -> None:
    env = standin.environment(library, STANDIN_NVML=mode, CUDA_VISIBLE_DEVICES=visible)
    answer = sampled(tmp_path / "raw.csv", f"open({str(tmp_path / 'ran')!r}, 'w')", env)
    assert answer.returncode == 1 and answer.stderr.count("\n") == 1 and not (tmp_path / "ran").exists()
    assert advice in str(doctor_checks.match_cause(answer.stderr, failures.CAUSES))


def test_a_machine_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libnvidia-ml.so.none")
    found = doctor.check_nvml()
    assert "libnvidia-ml.so.none" in found.found and "install the driver" in str(found.advice)
    assert doctor.describe_use(frozenset({found.name})) is None and doctor.describe_use(frozenset()) == "sample"


def test_doctor_asks_the_library(library: Path) -> None:
    code = "from profzoo.tools.sample import doctor; found = doctor.check_nvml(); print(found.found, found.advice)"
    for mode, said in (
        ("", "580.159.04, 1 GPU(s) None\n"),
        ("silent", "580.159.04, 1 GPU(s); no power, energy None\n"),
    ):
        env = standin.environment(library, STANDIN_NVML=mode)
        answer = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, env=env, capture_output=True, text=True)
        assert answer.stdout == said, answer.stderr


def test_what_a_driver_does_not_know_is_not_told(library: Path) -> None:
    """Its library lacks the function; the stand-in has none of the ECC's."""
    code = (
        "import pynvml; from profzoo.tools.sample import nvml; library = nvml.Nvml(); "
        "print(library.device(library.present()[0]['gpu_uuid'])._told(pynvml.nvmlDeviceGetEccMode))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, env=standin.environment(library), capture_output=True, text=True
    )
    assert answer.stdout == "None\n", answer.stderr


def test_the_window_lies_on_the_samplers_clock() -> None:
    recorder = recorders.Recorder(torch.device("cpu"))
    before = time.perf_counter_ns()
    recorder.start()
    recorder.step(1)
    recorder.stop()
    ended = recorder.window_began_ns + recorder.window_wall_ns
    assert before <= recorder.window_began_ns <= ended <= time.perf_counter_ns()


def test_samples_of_the_window_are_kept_in_base_units() -> None:
    table = tables.select_window(raw([5, 10, 15, 20], power_mw=1500, sm_clock_mhz=2, energy_mj=[1, 2, 4, 7]), 10, 5)
    assert tuple(table.columns) == tuple(tables.COLUMNS)
    assert table["t_ns"].tolist() == [0, 5] and table["energy_j"].tolist() == [0, 0.002]
    assert (table["power_w"].tolist(), table["sm_clock_hz"].tolist()) == ([1.5, 1.5], [2e6, 2e6])


def test_gpus_add_up() -> None:
    at = [index * 10**8 for index in range(20)]
    both = [raw(at, uuid, power_mw=watts * 1000, energy_mj=[index * watts * 100 for index in range(20)]) for uuid, watts in (("a", 100), ("b", 300))]  # fmt: skip
    told = tables.summarise_cell(tables.select_window(pd.concat(both), 0, 2 * 10**9), facts(window_began_ns=0))
    assert told["power_w"] == pytest.approx(400)
    assert told["step_energy_power_j"] == pytest.approx(200) == told["step_energy_counter_j"]
    assert told["item_energy_power_j"] == pytest.approx(100) == told["item_energy_counter_j"]


def test_what_one_gpu_does_not_tell_is_left_out() -> None:
    at = [index * 10**8 for index in range(20)]
    silent = raw(at, "b", power_mw=np.nan, energy_mj=np.nan)
    table = tables.select_window(pd.concat([raw(at, energy_mj=range(20)), silent]), 0, 2 * 10**9)
    assert set(tables.summarise_cell(table, facts(window_began_ns=0))) == {
        "sm_clock_hz", "sm_clock_high_hz", "temperature_max_c", "throttled_share",
    }  # fmt: skip


def test_a_mean_of_the_last_second_is_of_the_window_after_a_second() -> None:
    watts = [900.0] * 10 + [100.0] * 11
    rows = pd.DataFrame({"t_ns": [index * 10**8 for index in range(21)], "power_w": watts})
    assert tables.mean_power_w(rows, averaged=True) == 100
    assert tables.mean_power_w(rows, averaged=False) > 400
    assert np.isnan(tables.mean_power_w(rows.iloc[:19], averaged=True))


def test_a_counter_that_hardly_moves_is_not_gone_by() -> None:
    moves = [index // 10 for index in range(100)]
    rows = pd.DataFrame({"t_ns": range(100), "energy_j": moves})
    assert np.isnan(tables.energy_counter_power_w(rows))
    assert tables.energy_counter_power_w(pd.DataFrame({"t_ns": range(110), "energy_j": [*moves, *[10] * 10]})) == 1e8


def exported(
    folder: Path, samples: pd.DataFrame, own: dict[str, Any]
) -> tuple[pd.DataFrame, dict[str, Any], list[str]]:
    samples.to_csv(folder / "raw.csv", index=False)
    (folder / "raw.json").write_text(json.dumps(own))
    said: list[str] = []
    export.main(*(str(folder / name) for name in ("raw.csv", "raw.json", "out.csv", "out.json")), said.append)
    return pd.read_csv(folder / "out.csv"), json.loads((folder / "out.json").read_text()), said


def test_the_sidecar_says_how_it_was_sampled(tmp_path: Path) -> None:
    table, sidecar, said = exported(tmp_path, raw([1000 + index * 10**8 for index in range(15)]), facts())
    assert sidecar["gaps"] == sidecar["warnings"] == said == []
    assert (sidecar["samples"], sidecar["interval_reached_ms"], sidecar["power_is"]) == (15, 100, nvml.INSTANT)
    assert sidecar["power_limits_w"] == {"a": 700} and len(table) == 15
    assert activity.summarise_cell(table, sidecar)["power_w"] == pytest.approx(0.001)


@pytest.mark.parametrize("count", [0, 9])
def test_too_few_samples_say_nothing(tmp_path: Path, count: int) -> None:
    times = [0, *(1000 + index for index in range(count))]
    table, sidecar, said = exported(tmp_path, raw(times), facts(warnings=["another"]))
    (gap,) = sidecar["gaps"]
    assert f"the window of 2000 ms holds {count} sample(s)" in gap and "sample.window" in gap
    assert sidecar["warnings"] == ["another", gap] and gap in said[0] and sidecar["samples"] == count == len(table)
    assert activity.summarise_cell(table, sidecar) == {}


def test_gpus_of_other_nodes_leave_a_gap(tmp_path: Path) -> None:
    ranks = [{"device_uuid": "a"}, {"device_uuid": "b"}]
    table, sidecar, _ = exported(tmp_path, raw([1000 + index for index in range(15)]), facts(ranks=ranks))
    assert "only 1 of 2 GPUs were sampled" in sidecar["gaps"][0] and activity.summarise_cell(table, sidecar) == {}


def test_a_run_that_does_not_say_when_its_window_began(tmp_path: Path) -> None:
    without = facts()
    del without["window_began_ns"]
    with pytest.raises(DataError, match="collect it again"):
        exported(tmp_path, raw([1]), without)


@pytest.mark.parametrize(("kind", "why"), [("cpu", "ran on the CPU"), ("cuda", "could not be loaded")])
def test_what_could_not_be_sampled_is_said(tmp_path: Path, kind: str, why: str) -> None:
    table, sidecar, said = exported(tmp_path, raw([]), facts(device_type=kind))
    (gap,) = sidecar["gaps"]
    assert why in gap and gap in said[0] and table.empty and activity.summarise_cell(table, sidecar) == {}


@pytest.mark.parametrize("word", ["--nothing", None])
def test_without_nvml_the_program_runs_and_the_file_is_empty(tmp_path: Path, word: str | None) -> None:
    """On a CPU, and where the library is not there."""
    out = tmp_path / "raw.csv"
    asked = words(out, f"open({str(tmp_path / 'ran')!r}, 'w'); raise SystemExit(7)")
    asked = command.adapt_command(asked, gpu=word is None)
    code = "import sys; from profzoo.tools.sample import nvml, sampler; nvml.LIBRARY = 'libnone.so'; sys.exit(sampler.main())"
    answer = subprocess.run(
        [sys.executable, "-c", code, *asked[3:]], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 7 and (tmp_path / "ran").exists() and ("--nothing" in asked) == bool(word)
    assert answer.stderr.startswith("nothing is sampled: ") and answer.stderr.count("\n") == 1
    assert reading.read(out, tables.SAMPLES).empty


def test_a_window_lasts_until_the_counter_of_energy_is_good_enough() -> None:
    seconds = float(command.program_options({"steps": Path("x")})[-1])
    # A move every 100 ms, the first and last of them somewhere within.
    moving = [int(at * 10) for at in np.arange(0.07, seconds - 0.03, 0.02)]
    rows = pd.DataFrame({"process": 0, "gpu_uuid": "a", "energy_j": moving})
    assert tables.energy_resolution(rows) <= 0.02 and tables.describe_coarse_energy(rows) == []
    (said,) = tables.describe_coarse_energy(rows.iloc[: len(rows) // 2])
    assert "exact to 4" in said and "not to 2%" in said


def test_clocks_that_moved_and_what_held_them_back_are_named(tmp_path: Path, library: Path) -> None:
    env = standin.environment(library, STANDIN_NVML="throttled")
    assert sampled(tmp_path / "raw.csv", SLEEP.format(1.2), env).returncode == 0
    found = reading.read(tmp_path / "raw.csv", tables.SAMPLES)
    table = tables.select_window(found, int(found["time_ns"].iloc[0]), 10**9)
    told = tables.summarise_cell(table, facts(window_wall_ns=10**9))
    assert told["clocks"].startswith("SM clock from 1,485 to 1,980 MHz; power cap in ")
    assert 0.3 < told["throttled_share"] < 0.7 and told["sm_clock_high_hz"] == pytest.approx(1.98e9)
    steady = table.assign(sm_clock_hz=1.98e9, throttle_reasons=1)
    assert (
        "clocks" not in tables.summarise_cell(steady, facts())
        and tables.describe_clocks(steady.assign(sm_clock_hz=np.nan)) == ""
    )


def test_each_process_has_a_window_of_its_own(tmp_path: Path) -> None:
    at = [index * 10**7 for index in range(400)]
    watts = [100_000] * 200 + [300_000] * 200
    own = [{"window_began_ns": began, "window_wall_ns": 10**9, "steps": 10, "items": 20} for began in (0, 25 * 10**8)]
    table, sidecar, _ = exported(
        tmp_path, raw(at, power_mw=watts), facts(window_began_ns=0, window_wall_ns=10**9, processes=own)
    )
    assert table.groupby("process")["t_ns"].max().tolist() == [10**9, 10**9]
    each = tables.summarise_processes(table, sidecar)
    assert [process["item_energy_power_j"] for process in each] == pytest.approx([5, 15])
    assert activity.summarise_cell(table, sidecar)["power_w"] == pytest.approx(200)


def test_a_process_without_samples_leaves_a_gap(tmp_path: Path) -> None:
    own = [{"window_began_ns": began, "window_wall_ns": 10**9, "steps": 1, "items": 1} for began in (0, 9 * 10**9)]
    _, sidecar, _ = exported(tmp_path, raw([index * 10**7 for index in range(100)]), facts(processes=own))
    assert "holds 0 sample(s)" in sidecar["gaps"][0]


def test_the_first_of_several_processes_is_sampled_around() -> None:
    around = command.wrap_command(command.options({"interval_ms": 20}), {"samples": Path("x.csv")}, 2)
    which, *rest = around[len(profile_words := around[:3]) :]
    assert profile_words == ["python", "-m", "profzoo.collect.profile_ranks"] and which == "first"
    program = ["python", "-m", "models.run"]
    assert profile_ranks.rank_words(which, [*rest, *program], 1) == program
    assert profile_ranks.rank_words(which, [*rest, *program], 0) == [
        *("python", "-m", "profzoo.tools.sample.sampler", "--interval-ms", "20", "--out", "x.csv"),
        *program,
    ]
