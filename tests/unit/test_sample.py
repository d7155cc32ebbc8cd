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
import pynvml
import pytest

from profzoo import tools
from profzoo.collect import profile_ranks
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.machine import doctor_checks
from profzoo.records.import_graph import PROJECT
from profzoo.tools.sample import activity, command, doctor, failures, nvml, sampler, tables
from profzoo.tools.time import command as time_command
from profzoo.tools.time import tables as time_tables
from tests import nvml as standin
from tests import slow

SLEEP = "import time; time.sleep({})"
# What is printed when it fails, and a word of the advice that this gets; tests/unit/test_failures.py asks about each.
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


def words(out: Path, code: str) -> list[str]:
    """A small Python program under the sampler."""
    _, *own = command.wrap_command(command.options({"interval_ms": 5}), {"samples": out}, 1)
    return [sys.executable, *own, sys.executable, "-c", code]


def sampled(out: Path, code: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(out, code), cwd=PROJECT, env=env, capture_output=True, text=True, timeout=60)


def raw(times_ns: list[int], uuid: str = "a", **columns: Any) -> pd.DataFrame:
    """The sampler's rows of a GPU."""
    rest = dict.fromkeys((own for own, _ in tables.UNITS.values()), 1)
    told = {"power_is": nvml.INSTANT, "power_limit_mw": 700_000, **rest, "energy_mj": 0} | columns
    return pd.DataFrame({"time_ns": times_ns, "gpu_uuid": uuid, **told})


def facts(**more: Any) -> dict[str, Any]:
    return {
        "window_began_ns": 1000, "window_wall_ns": 2 * 10**9, "steps": 4, "items": 8, "device_uuid": "a", "warnings": [],
        "power_is": nvml.INSTANT, "gaps": [], **more,
    }  # fmt: skip


def test_planted_power_and_energy_come_out(tmp_path: Path, library: Path) -> None:
    answer = sampled(tmp_path / "raw.csv", SLEEP.format(1.5), standin.environment(library))
    assert answer.returncode == 0, answer.stderr
    found = reading.read(tmp_path / "raw.csv", tables.SAMPLES)
    # A window within the program's life, as a run has one.
    began, wall = int(found["time_ns"].iloc[0]) + 150_000_000, 1_200_000_000
    table = tables.select_window(found, began, wall)
    assert tables.find_gaps(table, [{"window_wall_ns": wall}], [standin.UUIDS[0]]) == []
    assert table["t_ns"].between(0, wall).all()
    planted = standin.energy_j(began + wall) - standin.energy_j(began)
    told = tables.summarise_cell(table, facts(window_began_ns=began, window_wall_ns=wall, steps=10))
    assert told["step_energy_power_j"] == pytest.approx(planted / 10, rel=0.05)
    assert told["power_w"] == pytest.approx(planted / 1.2, rel=0.05)
    # From the counter's first move to its last is not quite the window, over which this power swings.
    moves = table[table["energy_j"].diff() > 0]["t_ns"] + began
    first, last = (moves.iloc[index] // 10**8 * 10**8 for index in (0, -1))
    counted = (standin.energy_j(last) - standin.energy_j(first)) / (last - first) * 1e9
    assert told["step_energy_counter_j"] == pytest.approx(counted * 0.12, rel=0.05)
    assert (told["sm_clock_hz"], told["temperature_max_c"]) == (1.98e9, 61)


def test_only_the_gpus_of_the_job_are_sampled(tmp_path: Path, library: Path) -> None:
    env = standin.environment(library, STANDIN_GPUS="2", CUDA_VISIBLE_DEVICES="1,0")
    assert sampled(tmp_path / "raw.csv", SLEEP.format(0.1), env).returncode == 0
    assert pd.read_csv(tmp_path / "raw.csv")["gpu_uuid"].drop_duplicates().tolist() == standin.UUIDS[::-1]


@pytest.mark.parametrize("code", ["signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))", "pass"])
def test_an_interval_that_cannot_be_kept_hinders_neither_samples_nor_signals(code: str) -> None:
    """A program that heeds a signal ends as it wants to, and one that does not by it."""
    program = f"import signal, sys, time; {code}; print('here', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", SLOW, program], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    process.terminate()
    assert process.wait(30) == (128 + signal.SIGTERM if code == "pass" else 5)


# Each sample takes longer than the interval.
SLOW = """
import sys, time
from profzoo.tools.sample import sampler
sys.exit(sampler.run_and_sample([sys.executable, "-S", "-c", sys.argv[1]], lambda: time.sleep(0.05), 1))
"""


@pytest.mark.parametrize(
    ("mode", "visible", "advice"),
    slow.first([("mismatched", standin.UUIDS[0], "restart the machine"), ("", "-1", "CUDA_VISIBLE_DEVICES")]),
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
    assert doctor.describe_use(frozenset({found.name})) is None


def test_what_a_driver_does_not_know_is_not_told(loaded: pytest.MonkeyPatch) -> None:
    """Its library lacks the function; the stand-in has none of the ECC's."""
    with nvml.open_library() as opened:
        assert opened.device(standin.UUIDS[0])._told(pynvml.nvmlDeviceGetEccMode) is None


def test_what_one_gpu_does_not_tell_is_left_out() -> None:
    at = [index * 10**8 for index in range(20)]
    silent = raw(at, "b", power_mw=np.nan, energy_mj=np.nan)
    table = tables.select_window(pd.concat([raw(at, energy_mj=range(20)), silent]), 0, 2 * 10**9)
    assert set(tables.summarise_cell(table, facts(window_began_ns=0))) == {
        "sm_clock_hz", "sm_clock_high_hz", "temperature_max_c", "throttled_share",
    }  # fmt: skip


def exported(folder: Path, samples: pd.DataFrame, own: dict[str, Any]) -> tuple[pd.DataFrame, dict, list[str]]:
    samples.to_csv(folder / "raw.csv", index=False)
    (folder / "raw.json").write_text(json.dumps(own))
    said: list[str] = []
    tables.main(*(str(folder / name) for name in ("raw.csv", "raw.json", "out.csv", "out.json")), said.append)
    return pd.read_csv(folder / "out.csv"), json.loads((folder / "out.json").read_text()), said


def test_the_sidecar_says_how_it_was_sampled(tmp_path: Path) -> None:
    table, sidecar, said = exported(tmp_path, raw([1000 + index * 10**8 for index in range(15)]), facts())
    assert sidecar["gaps"] == sidecar["warnings"] == said == []
    assert (sidecar["samples"], sidecar["interval_reached_ms"], sidecar["power_is"]) == (15, 100, nvml.INSTANT)
    assert sidecar["power_limits_w"] == {"a": 700} and len(table) == 15
    assert activity.summarise_cell(table, sidecar)["power_w"] == pytest.approx(0.001)
    ranks = [{"device_uuid": "a"}, {"device_uuid": "b"}]
    samples = raw([1000 + index for index in range(15)])
    assert "only 1 of 2 GPUs were sampled" in exported(tmp_path, samples, facts(ranks=ranks))[1]["gaps"][0]


@pytest.mark.parametrize(
    ("count", "kind", "why"),
    [
        (0, None, "the window of 2000 ms holds 0 sample(s)"),
        (9, None, "the window of 2000 ms holds 9 sample(s), but at least 10 are needed"),
        (0, "cpu", "ran on the CPU"),
        (0, "cuda", "could not be loaded"),
    ],
)
def test_too_few_samples_say_nothing(tmp_path: Path, count: int, kind: str | None, why: str) -> None:
    times = [] if kind else [0, *(1000 + index for index in range(count))]
    own = facts(warnings=["another"], **{"device_type": kind} if kind else {})
    table, sidecar, said = exported(tmp_path, raw(times), own)
    (gap,) = sidecar["gaps"]
    assert why in gap and ("sample.window" in gap) == (kind is None) and gap in said[0]
    assert sidecar["warnings"] == ["another", gap] and sidecar["samples"] == count == len(table)
    assert activity.summarise_cell(table, sidecar) == {}


def test_a_run_that_does_not_say_when_its_window_began(tmp_path: Path) -> None:
    without = facts()
    del without["window_began_ns"]
    with pytest.raises(DataError, match="collect it again"):
        exported(tmp_path, raw([1]), without)


@pytest.mark.parametrize("word", slow.first([None, "--nothing"]))
def test_without_nvml_the_program_runs_and_the_file_is_empty(tmp_path: Path, word: str | None) -> None:
    """On a CPU, and where the library is not there."""
    out = tmp_path / "raw.csv"
    asked = words(out, f"open({str(tmp_path / 'ran')!r}, 'w'); raise SystemExit(7)")
    asked = command.adapt_command(asked, gpu=word is None)
    code = "import sys; from profzoo.tools.sample import nvml, sampler; nvml.LIBRARY = 'libnone.so'; sys.exit(sampler.main())"
    answer = subprocess.run([sys.executable, "-c", code, *asked[3:]], cwd=PROJECT, capture_output=True, text=True)
    assert answer.returncode == 7 and (tmp_path / "ran").exists() and ("--nothing" in asked) == bool(word)
    assert answer.stderr.startswith("nothing is sampled: ") and answer.stderr.count("\n") == 1
    assert reading.read(out, tables.SAMPLES).empty


def test_each_process_has_a_window_of_its_own(tmp_path: Path) -> None:
    samples = raw([index * 10**7 for index in range(400)], power_mw=[100_000] * 200 + [300_000] * 200)
    own = [{"window_began_ns": began, "window_wall_ns": 10**9, "steps": 10, "items": 20} for began in (0, 25 * 10**8)]
    window = facts(window_began_ns=0, window_wall_ns=10**9, processes=own)
    table, sidecar, _ = exported(tmp_path, samples, window)
    assert table.groupby("process")["t_ns"].max().tolist() == [10**9, 10**9]
    each = tables.summarise_processes(table, sidecar)
    assert [process["item_energy_power_j"] for process in each] == pytest.approx([5, 15])
    assert activity.summarise_cell(table, sidecar)["power_w"] == pytest.approx(200)
    own[1]["window_began_ns"] = 9 * 10**9
    assert "holds 0 sample(s)" in exported(tmp_path, samples, window)[1]["gaps"][0]


def test_the_first_of_several_processes_is_sampled_around() -> None:
    around = command.wrap_command(command.options({"interval_ms": 20}), {"samples": Path("x.csv")}, 2)
    assert around[:4] == ["python", "-m", "profzoo.collect.profile_ranks", "first"]
    program = ["python", "-m", "models.run"]
    assert profile_ranks.rank_words("first", [*around[4:], *program], 1) == program
    own = ["python", "-m", "profzoo.tools.sample.sampler", "--interval-ms", "20", "--out", "x.csv", *program]
    assert profile_ranks.rank_words("first", [*around[4:], *program], 0) == own


@pytest.fixture
def loaded(library: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Of this process; what its GPUs are is told by the environment."""
    return standin.load_here(library, monkeypatch)


@pytest.mark.parametrize(("mode", "power_is"), [("", nvml.INSTANT), ("old", nvml.MEAN), ("silent", None)])
def test_a_gpu_is_read(loaded: pytest.MonkeyPatch, mode: str, power_is: str | None) -> None:
    """What the stand-in tells: power at a moment or of a second, which lies at 200 W on the whole, or neither."""
    loaded.setenv("STANDIN_NVML", mode)
    with nvml.open_library() as opened:
        device = opened.device(standin.UUIDS[0])
        told = device.reading()
    assert device.power_is == (power_is or nvml.MEAN) and device.power_limit_mw == 700_000
    right = {nvml.MEAN: pytest.approx(200_000, rel=0.01), nvml.INSTANT: pytest.approx(200_000, abs=100_000)}
    assert told["power_mw"] == (right[power_is] if power_is else None)
    assert (told["sm_clock_mhz"], told["memory_clock_mhz"], told["temperature_c"]) == (1980, 2619, 61)
    assert (told["gpu_utilisation_pct"], told["memory_utilisation_pct"]) == (87, 42)
    assert told["memory_used_bytes"] == 2**36 and tuple(told) == nvml.READ
    # More than 32 bits: 200 J a second since the machine began.
    now = standin.energy_j(time.perf_counter_ns()) * 1e3
    assert told["energy_mj"] == (pytest.approx(now, abs=60_000) if power_is else None)


def test_gpus_are_told_apart(loaded: pytest.MonkeyPatch) -> None:
    loaded.setenv("STANDIN_GPUS", "2")
    with nvml.open_library() as opened:
        assert [one["gpu_uuid"] for one in opened.present()] == standin.UUIDS
        assert {one["gpu"] for one in opened.present()} == {"NVIDIA H200"} and opened.driver() == "580.159.04"
        with pytest.raises(nvml.NvmlError, match="NVML: nvmlDeviceGetHandleByUUID: Not Found"):
            opened.device("GPU-none")
        loaded.setenv("CUDA_VISIBLE_DEVICES", standin.UUIDS[1])
        rows: list = []
        sampler.make_writer(sampler.visible_gpus(opened), rows.append)()
        assert rows[0] == [*sampler.HEADING, *nvml.READ] and rows[1][1:4] == [standin.UUIDS[1], nvml.INSTANT, 700_000]
        loaded.setenv("CUDA_VISIBLE_DEVICES", "-1")
        with pytest.raises(nvml.NvmlError, match="no GPU is visible"):
            sampler.visible_gpus(opened)


@pytest.mark.parametrize(
    ("gpus", "mode", "said"),
    [("1", "", "1 GPU(s)"), ("2", "silent", "2 GPU(s); no power, energy"), ("0", "", "no GPU")],
)
def test_doctor_says_what_there_is(loaded: pytest.MonkeyPatch, gpus: str, mode: str, said: str) -> None:
    loaded.setenv("STANDIN_GPUS", gpus)
    loaded.setenv("STANDIN_NVML", mode)
    found = doctor.check_nvml()
    assert (found.found, found.advice) == (f"580.159.04, {said}", "see GPU above" if gpus == "0" else None)
    for lacking in ("GPU", "torch CUDA", "torch", "NVML"):
        assert doctor.describe_use(frozenset({lacking, "other"})) is None
    assert doctor.describe_use(frozenset({"other"})) == "sample"


def test_a_program_is_sampled_at_the_interval() -> None:
    """At 0, 100, 200 ms and so on while it runs, never more often; at once as it ends, whatever is left to wait."""
    before, times = signal.pthread_sigmask(signal.SIG_BLOCK, ()), []
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(0.25); raise SystemExit(7)"]
    began = time.perf_counter()
    assert sampler.run_and_sample(sleep, lambda: times.append(time.perf_counter() - began), 100_000_000) == 7
    assert 2 <= len(times) <= (time.perf_counter() - began) / 0.1 + 1
    count: list[int] = []
    killed = [sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)"]
    began = time.perf_counter()
    assert sampler.run_and_sample(killed, lambda: count.append(1), 60_000_000_000) == 128 + 9
    assert count == [1] and time.perf_counter() - began < 30
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_window_lasts_until_a_move_of_the_counter_is_a_fiftieth() -> None:
    """Fifty moves of 100 ms, and 300 ms in which it begins and ends between two."""
    *files, seconds = command.program_options({"steps": Path("x")})
    assert files == ["--steps", "x", "--at-least-s"] and float(seconds) == pytest.approx(5.3)


def test_every_column_is_in_its_base_unit() -> None:
    columns = {"power_mw": 1_500, "sm_clock_mhz": 2, "memory_clock_mhz": 3, "temperature_c": 61, "gpu_utilisation_pct": 87,
               "memory_utilisation_pct": 42, "memory_used_bytes": 2**36, "throttle_reasons": 4, "energy_mj": [2_000, 5_000]}  # fmt: skip
    row = tables.select_window(raw([10, 20], **columns), 10, 10, 3).iloc[-1]
    assert row.to_dict() == {
        "process": 3, "t_ns": 10, "gpu_uuid": "a", "power_w": 1.5, "sm_clock_hz": 2e6, "memory_clock_hz": 3e6,
        "temperature_c": 61, "gpu_utilisation_pct": 87, "memory_utilisation_pct": 42, "memory_used_bytes": 2**36,
        "throttle_reasons": 4, "energy_j": 3,
    }  # fmt: skip


def times_of(times: dict[tuple[int, str], list[int]]) -> pd.DataFrame:
    """When each GPU was sampled in each process."""
    rows = [{"process": process, "gpu_uuid": uuid, "t_ns": at} for (process, uuid), own in times.items() for at in own]
    return pd.DataFrame(rows, columns=["process", "gpu_uuid", "t_ns"])


def test_the_gpu_with_the_fewest_samples_decides() -> None:
    ten, nine = list(range(10)), list(range(9))
    windows = [{"window_wall_ns": 3_000_000}, {"window_wall_ns": 2_000_000}]
    whole = {(process, uuid): ten for process in (0, 1) for uuid in "ab"}
    assert tables.find_gaps(times_of(whole), windows, ["a", "b", "b"]) == []
    (said,) = tables.find_gaps(times_of(whole | {(1, "a"): nine}), windows, ["a", "b"])
    assert said.startswith("the window of 2 ms holds 9 sample(s), but at least 10 are needed")
    # One that is lacking in a process, a process without any, and no sample at all.
    for lacking in ({(0, "a"): ten, (1, "b"): ten}, {(0, "a"): ten}, {}):
        assert "holds 0 sample(s)" in tables.find_gaps(times_of(lacking), windows, [])[0]
    said = "only 2 of 3 GPUs were sampled: the GPUs of the first node"
    assert tables.find_gaps(times_of(whole), windows, ["a", "b", "c"]) == [said]


def test_the_interval_is_of_each_gpus_samples() -> None:
    """2, 4 and 9 ms, not what lies between one GPU's and another's."""
    times = {(0, "a"): [0, 2_000_000, 6_000_000], (0, "b"): [1, 9_000_001], (1, "a"): [50_000_000]}
    assert tables.mean_interval_ms(times_of(times)) == 5
    assert tables.mean_interval_ms(times_of({(0, "a"): [1], (1, "a"): [7]})) is None


def test_power_between_samples_is_the_mean_of_both() -> None:
    """100 W for 8 s, from 100 to 300 for 1 s, which is 200: 1,000 J in 9 s."""
    rows = pd.DataFrame({"t_ns": np.arange(10) * 10**9, "power_w": [100.0] * 9 + [300.0]})
    assert tables.mean_power_w(rows, averaged=False) == pytest.approx(1000 / 9)
    assert np.isnan(tables.mean_power_w(rows, averaged=True))
    assert np.isnan(tables.mean_power_w(rows.assign(power_w=[np.nan, *[1.0] * 9]), averaged=False))
    # The sample at the end of the first second is the first of the window.
    late = pd.DataFrame({"t_ns": 10**9 + np.arange(10), "power_w": 5.0})
    assert tables.mean_power_w(late, averaged=True) == 5
    assert np.isnan(tables.mean_power_w(late.assign(t_ns=late["t_ns"] - 1), averaged=True))


def test_a_counters_power_is_from_move_to_move() -> None:
    """Ten moves of 3 J, 0.1 s apart: 27 J in 0.9 s."""
    rows = pd.DataFrame({"t_ns": np.arange(11) * 10**8, "energy_j": np.arange(11) * 3.0})
    assert tables.energy_counter_power_w(rows) == pytest.approx(30)
    assert np.isnan(tables.energy_counter_power_w(rows.iloc[:10]))


@pytest.mark.parametrize(("moves", "error"), [(0, np.nan), (1, np.nan), (2, 1), (51, 0.02)])
def test_a_move_is_a_part_of_the_counted_energy(moves: int, error: float) -> None:
    rows = pd.DataFrame({"energy_j": [*range(moves + 1), moves]})
    assert tables.energy_resolution(rows) == pytest.approx(error, nan_ok=True)


def test_a_counter_that_leaves_more_than_a_fiftieth_open_is_told() -> None:
    def of(**moves: int) -> pd.DataFrame:
        frames = [pd.DataFrame({"process": 0, "gpu_uuid": uuid, "energy_j": range(n + 1)}) for uuid, n in moves.items()]
        return pd.concat(frames)

    assert tables.describe_coarse_energy(of(a=51, b=0)) == [] == tables.describe_coarse_energy(of(a=0))
    (said,) = tables.describe_coarse_energy(of(a=60, b=50))
    assert said == "the energy counter is exact to 2.0%, not to 2%: it moved too seldom"


def test_a_cell_is_told_of_all_its_gpus() -> None:
    """100 and 300 W for 2 s in 4 steps of 8 items; one counter moves 11 times, the other 20; one clock is held back."""
    at = np.arange(21) * 10**8
    first = raw(list(at), "a", power_mw=100_000, energy_mj=[min(n, 11) * 10_000 for n in range(21)], temperature_c=61,
                sm_clock_mhz=1_000, throttle_reasons=0x101)  # fmt: skip
    second = raw(list(at), "b", power_mw=300_000, energy_mj=[n * 30_000 for n in range(21)], temperature_c=70,
                 sm_clock_mhz=2_000, throttle_reasons=0x80)  # fmt: skip
    table = tables.select_window(pd.concat([first, second]), 0, 2 * 10**9)
    told = tables.summarise_cell(table, facts(window_began_ns=0))
    assert told == pytest.approx(
        {
            "power_w": 400, "step_energy_power_j": 200, "step_energy_counter_j": 200, "item_energy_power_j": 100,
            "item_energy_counter_j": 100, "energy_error": 0.1, "sm_clock_hz": 1.5e9, "sm_clock_high_hz": 2e9,
            "temperature_max_c": 70,
            "throttled_share": 0.5, "clocks": "power brake in 50% of samples",
        }
    )  # fmt: skip


def test_means_of_the_last_second_are_told_from_momentary_power() -> None:
    """900 W in the first second and 100 after it: of means of a second only the latter are of the window."""
    rows = raw([n * 10**8 for n in range(21)], power_mw=[900_000] * 10 + [100_000] * 11)
    table = tables.select_window(rows, 0, 2 * 10**9)
    assert tables.summarise_cell(table, facts(power_is=nvml.MEAN))["power_w"] == pytest.approx(100)
    assert tables.summarise_cell(table, facts())["power_w"] == pytest.approx((9 * 90 + 50 + 10 * 10) / 2)


def clocked(**hz: list[float]) -> pd.DataFrame:
    """Clocks of GPUs, which nothing holds back."""
    frames = [pd.DataFrame({"process": 0, "gpu_uuid": uuid, "sm_clock_hz": own}) for uuid, own in hz.items()]
    return pd.concat(frames).assign(throttle_reasons=0)


def spread(low: float) -> list[float]:
    """21 clocks of which the second is low, and the last but one 1 GHz: the middle nine tenths' edges."""
    return [1e8, low, *[1e9] * 18, 9e9]


def test_a_clock_has_moved_by_more_than_a_fiftieth_of_its_middle_nine_tenths() -> None:
    assert tables.describe_clocks(clocked(a=spread(0.981e9))) == ""
    assert tables.describe_clocks(clocked(a=spread(0.979e9))) == "SM clock from 979 to 1,000 MHz"
    # The one that moved most.
    moved = clocked(a=spread(0.9e9), b=spread(0.5e9), c=spread(0.7e9))
    assert tables.describe_clocks(moved) == "SM clock from 500 to 1,000 MHz"
    assert tables.describe_clocks(moved.iloc[:0]) == ""


# SwPowerCap, SyncBoost and so on of nvml.h.
BITS = {4: "power cap", 8: "hardware slowdown", 16: "sync boost", 32: "thermal slowdown by software",
        64: "thermal slowdown by hardware", 128: "power brake"}  # fmt: skip


@pytest.mark.parametrize(("bit", "name"), list(BITS.items()))
def test_a_reason_is_named_from_a_hundredth_of_the_samples_on(bit: int, name: str) -> None:
    steady = clocked(a=[1e9] * 100).assign(throttle_reasons=[bit, *[1] * 99])
    assert tables.describe_clocks(steady) == f"{name} in 1% of samples"
    assert tables.describe_clocks(pd.concat([steady, steady.iloc[-1:]])) == ""
    # What does not tell of reasons is not a sample of them.
    assert tables.describe_clocks(steady.assign(throttle_reasons=[bit, *[np.nan] * 99])) == f"{name} in 100% of samples"


def test_what_is_shown_of_a_cell_has_units() -> None:
    values = {"power": 1_234.4, "energy per step (power)": 1.2345, "SM clock": 1.98e9, "hottest": 61.4}
    shown = [activity.COLUMNS[name][1](value) for name, value in values.items()]
    assert shown == ["1,234 W", "1.23 J", "1,980 MHz", "61 °C"]


def test_steps_of_each_process_of_the_baseline_are_all_there() -> None:
    holds, alone = time_tables.REPEATED.holds, time_tables.TABLE.holds
    assert holds is not None and alone is not None and alone(pd.DataFrame({"step": [1, 0, 2]})) is None
    for steps in ([0, 2], [1, 2], [0, 0]):
        assert alone(pd.DataFrame({"step": steps})) == "steps are not those from 0 to 1: rows are missing"
    whole = pd.DataFrame({"process": [0, 0, 1, 1], "step": [0, 1, 0, 1]})
    assert holds(whole) is None
    assert holds(whole.assign(process=[0, 0, 2, 2])) == "processes are not those from 0 to 1: rows are missing"
    lacking = whole.assign(step=[0, 1, 0, 2])
    assert holds(lacking) == "process 1: steps are not those from 0 to 1: rows are missing"
    assert holds(lacking.assign(step=[1, 2, 0, 2])).startswith("process 0: ")


def test_what_a_step_holds_adds_up_to_its_peak() -> None:
    holds = time_tables.MEMORY.holds
    held = {f"{name}_bytes": [1, 2, 3] for name in time_tables.HELD}
    table = pd.DataFrame({"order": [0, 1, 2], "peak_bytes": [7, 14, 21], **held})
    table = table.assign(begin_bytes=[0, 14, 0], end_bytes=[7, 0, 1])
    assert holds is not None and len(time_tables.HELD) == 7 and holds(table) is None
    assert holds(table.assign(order=[1, 2, 3])) == "ranges are not those from 0 to 2: rows are missing"
    assert holds(table.assign(peak_bytes=[7, 15, 20])) == "row 2: what is held adds up to another peak"
    for moment in ("begin", "end"):
        found = holds(table.assign(**{f"{moment}_bytes": [0, 15, 0]}))
        assert found == "row 2: more is held at the beginning or the end than at the peak"
    modules = table.assign(module=["", "", "a"])
    assert holds(modules.assign(module=["", "", ""])) is None
    assert holds(modules) == "what modules hold adds up to another peak than the step's"
    halves = {name: [2 * size, size, size] for name, size in zip(held, range(7), strict=True)}
    assert holds(table.assign(module=["", "a", "b"], peak_bytes=[42, 21, 21], **halves)) is None


def test_the_baselines_clock_writes_steps_and_memory() -> None:
    steps, memory = Path("s"), Path("m")
    assert time_command.program_options({"steps": steps}) == ["--steps", "s"]
    assert tools.commands()["time"].output_files({"steps": steps, "sidecar": Path("s.json")}) == [steps]
    both = {"steps": steps, "memory": memory}
    assert time_command.program_options(both) == ["--steps", "s", "--memory", "m"]
    assert tools.commands()["time"].output_files(both) == [steps, memory]
